#!/usr/bin/env python3
"""Measures OpenVINO GenAI in process on an exported model folder (see README.md for how to get both). Prints JSON."""

import os
import sys

sys.path.append(sys.path.pop(0))  # this file is named like the package that it measures: the package comes first

import numpy  # noqa: E402
import openvino  # noqa: E402
import openvino_genai  # noqa: E402

import workloads  # noqa: E402


def properties(args):
    """Everything that is left out is the library's own choice."""
    chosen = {"INFERENCE_NUM_THREADS": args.threads}
    for key, value in (("INFERENCE_PRECISION_HINT", args.precision), ("KV_CACHE_PRECISION", args.kv),
                       ("DYNAMIC_QUANTIZATION_GROUP_SIZE", args.group_size)):
        if value is not None:
            chosen[key] = value
    return chosen


def generation(n_out):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = n_out
    config.min_new_tokens = n_out
    config.ignore_eos = True
    config.do_sample = False
    config.apply_chat_template = False
    return config


def tensor(prompt):
    return openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))


class Batching:
    """The pipeline for many streams: requests go in together, the caller turns the crank."""

    def __init__(self, args):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = args.cache_gb
        scheduler.max_num_batched_tokens = args.batched_tokens
        scheduler.max_num_seqs = 64
        scheduler.enable_prefix_caching = False
        scheduler.dynamic_split_fuse = not args.no_split_fuse
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU", properties(args))
        self.requests = 0

    def run(self, prompts, n_out):
        tensors = [tensor(prompt) for prompt in prompts]
        start = self.clock()
        handles = []
        for t in tensors:
            handles.append(self.pipeline.add_request(self.requests, t, generation(n_out)))
            self.requests += 1
        counts, first_s = [0] * len(handles), None
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for i, handle in enumerate(handles):
                while handle.can_read():
                    counts[i] += sum(len(output.generated_ids) for output in handle.read().values())
            if first_s is None and all(counts):
                first_s = self.clock() - start
        return workloads.Run(first_s, self.clock() - start, counts)


class Single:
    """The pipeline for one stream, without a paged cache: has less to do for each token."""

    def __init__(self, args):
        self.pipeline = openvino_genai.LLMPipeline(args.model, "CPU", ATTENTION_BACKEND="SDPA", **properties(args))

    def run(self, prompts, n_out):
        if len(prompts) != 1:
            sys.exit("--pipeline single runs workloads of one stream: --only prefill_512,decode_1,streams_1")
        prompt, times = tensor(prompts[0]), []

        def on_token(_):
            times.append(self.clock() - start)
            return openvino_genai.StreamingStatus.RUNNING

        class Streamer(openvino_genai.StreamerBase):
            def write(self, tokens):
                n = len(tokens) if isinstance(tokens, list) else 1
                return [on_token(t) for t in range(n)][-1]

            def end(self):
                pass

        start = self.clock()
        result = self.pipeline.generate(prompt, generation(n_out), Streamer())
        total_s = self.clock() - start
        return workloads.Run(times[0], total_s, [len(tokens) for tokens in result.tokens])


def parse():
    p = workloads.parser(__doc__)
    p.add_argument("model", help="folder with openvino_model.xml")
    p.add_argument("--pipeline", choices=["batching", "single"], default="batching")
    p.add_argument("--precision", choices=["f32", "bf16", "f16"], help="compute precision")
    p.add_argument("--kv", choices=["u8", "u4", "bf16", "f16", "f32"], help="KV cache format")
    p.add_argument("--group-size", type=int, help="of activations quantized on the fly; 0: none")
    p.add_argument("--batched-tokens", type=int, default=2048, help="at most so many tokens in a step")
    p.add_argument("--no-split-fuse", action="store_true", help="whole prompts only, prompts and decoding not mixed")
    p.add_argument("--cache-gb", type=int, default=3)
    p.add_argument("--vocab", type=int, default=40000, help="prompts are of ids from 1000 to this")
    return p.parse_args()


def main():
    args = parse()
    engine = {"batching": Batching, "single": Single}[args.pipeline](args)
    engine.name, engine.vocab, engine.pids = "OpenVINO GenAI", args.vocab, ()
    engine.clock = workloads.clock(args)
    engine.settings = {"version": openvino_genai.__version__, "model": os.path.basename(os.path.normpath(args.model)), "pipeline": args.pipeline,
                       "properties": properties(args), "batched_tokens": args.batched_tokens,
                       "split_fuse": not args.no_split_fuse}
    workloads.main(engine, args)


main()
