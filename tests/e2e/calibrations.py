"""Calibrations of `quire simulate --save` whose step times are chosen."""

import json

TERMS = ["step", "rows_2", "rows_4", "rows_8", "rows_16", "rows_32", "rows_64", "rows_128", "rows_256", "rows_more",
         "decode_rows", "sequences", "logit_rows_8", "logit_rows_more", "prefill_attended", "decode_attended"]
REGIONS = ["decode, up to 8 rows", "decode, more rows", "prefill, up to 128 rows", "prefill, more rows", "mixed"]


def calibration(path, step_us=10000, row_us=0, **fields):
    """A step takes step_us and row_us for each row but the first."""
    forward = dict.fromkeys(TERMS, 0.0)
    forward["step"] = step_us
    for name in TERMS[1:10]:
        forward[name] = row_us
    text = {"model": "made-up", "numerics_id": "0", "family": "llama", "dtype": "bfloat16", "cpu_path": "ref",
            "machine": "none"}
    numbers = {"n_threads": 1, "max_model_len": 8192, "n_groups": 1, "block_tokens": 16, "n_blocks": 100000,
               "kv_bytes_per_token": 1000, "chat_tokens": 8, "startup_s": 5.0, "request_us": 0.0,
               "prompt_token_us": 0.0, "row_us": 0.0, "created_unix_s": 0, "windows": [0]}
    fit = [{"region": r, "steps": 0, "median_error": 0.0, "p95_error": 0.0, "bias": 0.0} for r in REGIONS]
    path.write_text(json.dumps({"format": "quire-calibration", "version": 1, **text, **numbers, "forward_us": forward,
                                "rest_us": dict.fromkeys(TERMS, 0.0), "fit": fit, **fields}))
    return path
