#!/usr/bin/env python3
"""Measures Quire over HTTP with the workloads of the other engines. Prints JSON."""

from quire_server import Server, measure, parser

p = parser(__doc__)
p.add_argument("model", help="what quire serve takes")
p.add_argument("--dtype")
p.add_argument("--serve-args", default="", metavar="ARGS", help="more for quire serve")
measure(Server, p.parse_args())
