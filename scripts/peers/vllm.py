#!/usr/bin/env python3
"""Measures vLLM in process on a model folder of the Hugging Face layout (see README.md for how to get both). Prints JSON."""

import os
import sys
import time

sys.path.append(sys.path.pop(0))  # this file is named like the package that it measures: the package comes first

import workloads  # noqa: E402


def engine_of(args):
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(args.cache_gb))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{args.threads - 1}")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import vllm

    llm = vllm.LLM(args.model, dtype=args.dtype, max_num_seqs=64, max_model_len=2048, enable_prefix_caching=False,
                   max_num_batched_tokens=args.batched_tokens, skip_tokenizer_init=True, seed=0)
    return Engine(vllm, llm.llm_engine, args)


class Engine:
    def __init__(self, vllm, engine, args):
        self.vllm, self.engine, self.requests = vllm, engine, 0
        self.name, self.vocab = "vLLM", args.vocab
        self.settings = {"version": vllm.__version__, "model": args.model, "dtype": args.dtype,
                         "batched_tokens": args.batched_tokens}

    def run(self, prompts, n_out):
        sampling = self.vllm.SamplingParams(temperature=0, max_tokens=n_out, min_tokens=n_out, ignore_eos=True,
                                            detokenize=False)
        start = time.perf_counter()
        counts, first_s = {}, None
        for prompt in prompts:
            counts[str(self.requests)] = 0
            self.engine.add_request(str(self.requests), {"prompt_token_ids": prompt}, sampling)
            self.requests += 1
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                counts[output.request_id] = len(output.outputs[0].token_ids)
            if first_s is None and all(counts.values()):
                first_s = time.perf_counter() - start
        return workloads.Run(first_s, time.perf_counter() - start, list(counts.values()))


def parse():
    p = workloads.parser(__doc__)
    p.add_argument("model", help="folder with config.json and safetensors")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--batched-tokens", type=int, default=2048, help="at most so many tokens in a step")
    p.add_argument("--cache-gb", type=int, default=3)
    p.add_argument("--vocab", type=int, default=40000, help="prompts are of ids from 1000 to this")
    return p.parse_args()


if __name__ == "__main__":
    arguments = parse()
    workloads.main(engine_of(arguments), arguments)
