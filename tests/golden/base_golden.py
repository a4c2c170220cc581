#!/usr/bin/env python3
"""Golden data of tests/unit/base: writes tests/data/base/hash_keys.txt and floats.txt.

SipHash-2-4-128, the KV keys and the bulk hash are computed here from their descriptions (Aumasson and Bernstein, "SipHash:
a fast short-input PRF", 2012, and the comments of src/base/hash.h and hash.c), independently of the C code; the SipHash
below is first checked against the reference vectors (tests/data/base/siphash128.txt). The shortest texts of doubles are
Python's repr. Needs no packages."""

import pathlib
import random
import struct

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "base"
M64 = (1 << 64) - 1


def rotl(v, n):
    return ((v << n) | (v >> (64 - n))) & M64


def sip128(k0, k1, data):
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & M64
            v[1] = rotl(v[1], 13) ^ v[0]
            v[0] = rotl(v[0], 32)
            v[2] = (v[2] + v[3]) & M64
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & M64
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & M64
            v[1] = rotl(v[1], 17) ^ v[2]
            v[2] = rotl(v[2], 32)

    n = len(data)
    padded = data + bytes(7 - n % 8) + bytes([n & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    lo = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return lo, v[0] ^ v[1] ^ v[2] ^ v[3]


def bulk(data):
    lanes = [(0x243F6A8885A308D3 + i, 0x13198A2E03707344 + i) for i in range(4)]
    whole = len(data) // 64 * 64
    for at in range(0, whole, 64):
        for i, (lo, hi) in enumerate(lanes):
            first, second = struct.unpack_from("<QQ", data, at + 16 * i)
            x, y = lo ^ first, (hi + second) & M64
            product = x * (y ^ 0xB7E151628AED2A6B)
            lanes[i] = (product & M64) ^ y, ((product >> 64) + x) & M64
    state = b"".join(struct.pack("<QQ", *lane) for lane in lanes) + struct.pack("<Q", len(data))
    return sip128(0x082EFA98EC4E6C89, 0x452821E638D01377, state + data[whole:])


def root_key(secret, numerics, adapter, salt):
    message = struct.pack("<QQQ", 1, *numerics)
    for tag, text in ((2, adapter), (3, salt)):
        raw = (text or "").encode()
        message += struct.pack("<QQ", tag | (0 if text is None else 0x100), len(raw)) + raw
    return sip128(*secret, message)


def block_key(secret, parent, tokens):
    message = struct.pack("<QQQQ", 4, *parent, len(tokens))
    message += b"".join(struct.pack("<I", t) for t in tokens) + (bytes(4) if len(tokens) % 2 else b"")
    return sip128(*secret, message)


def check_sip():
    data = bytes(range(64))
    for n, line in enumerate((DATA / "siphash128.txt").read_text().split()):
        want = struct.unpack("<QQ", bytes.fromhex(line))
        assert sip128(0x0706050403020100, 0x0F0E0D0C0B0A0908, data[:n]) == want, n


def keys():
    secret, numerics = (0x0123456789ABCDEF, 0xFEDCBA9876543210), (0x1111222233334444, 0x5555666677778888)
    rows = []

    def put(name, pair):
        rows.append(f"{name} {pair[0]:016x} {pair[1]:016x}")

    put("root", root_key(secret, numerics, None, None))
    put("root-empty", root_key(secret, numerics, "", ""))
    put("root-adapter", root_key(secret, numerics, "ab", None))
    put("root-salt", root_key(secret, numerics, None, "ab"))
    put("root-both", root_key(secret, numerics, "lora-1", "tenant 7"))
    root = root_key(secret, numerics, "lora-1", "tenant 7")
    put("block-16", block_key(secret, root, list(range(100, 116))))
    put("block-3", block_key(secret, root, [1, 0xFFFFFFFF, 0]))
    put("block-0", block_key(secret, root, []))
    for n in (0, 1, 31, 32, 33, 63, 64, 65, 1000):
        put(f"bulk-{n}", bulk(bytes((i * 7 + i // 256) & 255 for i in range(n))))
    put("text", sip128(0x6572697571202D20, 0x7465726365732073, b"shared secret"))
    return "\n".join(rows) + "\n"


def floats():
    rng = random.Random(1)
    values = [0.0, 1.0, -1.0, 0.1, 0.5, 1 / 3, 1e15, 1e16, 1e17, 1e22, 1e23, 123456789.125, 5e-324, 2.5e-323, 1e-310,
              2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0, 1e-5, 12345.678, -0.0]
    values += [struct.unpack("<f", struct.pack("<f", -rng.expovariate(0.3)))[0] for _ in range(60)]
    while len(values) < 240:
        v = struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0]
        if v == v and abs(v) != float("inf"):
            values.append(v)
    values += [round(rng.uniform(0, 1000), rng.randrange(1, 9)) for _ in range(60)]
    return "".join(f"{struct.unpack('<Q', struct.pack('<d', v))[0]:016x} {v!r}\n" for v in values)


check_sip()
(DATA / "hash_keys.txt").write_text(keys())
(DATA / "floats.txt").write_text(floats())
