#!/usr/bin/env python3
"""Measures Quire over HTTP with the workloads of the other engines. Prints JSON."""

from quire_server import Server, measure, parser

p = parser(__doc__)
p.add_argument("model", help="what quire serve takes")
p.add_argument("--dtype")
measure(Server, p.parse_args())
