#!/usr/bin/env python3
"""Measures Quire over HTTP with the workloads of the other engines. Prints JSON."""

import sys

import workloads
from quire_server import ROOT, Server


def parse():
    p = workloads.parser(__doc__)
    p.add_argument("model", help="what quire serve takes")
    p.add_argument("--quire", default=str(ROOT / "build" / "quire"), metavar="PROGRAM")
    p.add_argument("--dtype")
    p.add_argument("--vocab", type=int, default=40000, help="prompts are of ids from 1000 to this")
    return p.parse_args()


def main():
    args = parse()
    if args.cpu_time:
        sys.exit("--cpu-time: the server is a process of its own")
    server = Server(args)
    try:
        workloads.main(server, args)
    finally:
        server.stop()


main()
