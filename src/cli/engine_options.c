#include "cli/cli.h"

#include <string.h>

/* Names, meanings and defaults are vLLM's where it has the flag; the differences are in docs/flags.md. */
size_t engine_option_rows(struct option *table, size_t at) {
    const struct option rows[ENGINE_OPTION_ROWS] = {
        {"dtype", OPTION_CHOICE, ENGINE_OPTION(dtype), "Model", "TYPE", "auto", 0, 0,
         "auto|bfloat16|float16|half|float32|float", NULL,
         "Type of activations, KV and unquantized weights; auto is bfloat16. Quantized weights stay as they "
         "are."},
        {"max-model-len", OPTION_INT, ENGINE_OPTION(max_model_len), "Model", "N", "0", 0, 1 << 30, NULL, NULL,
         "Longest sequence in tokens, prompt and answer together; 0 is the model's own."},
        {"seed", OPTION_INT, ENGINE_OPTION(seed), "Model", "N", "0", 0, 9.2e18, NULL, NULL,
         "Base seed of requests that bring none."},
        {"chat-template", OPTION_STRING, ENGINE_OPTION(chat_template), "Model", "FILE", NULL, 0, 0, NULL,
         NULL, "Jinja chat template to use instead of the model's."},
        {"tokenizer", OPTION_STRING, ENGINE_OPTION(tokenizer), "Model", "PATH", NULL, 0, 0, NULL, NULL,
         "A tokenizer.json, tokenizer.model or vocab.txt, or a folder that holds one, to use instead of the "
         "model's tokenizer."},
        {"tokenizer-pre", OPTION_STRING, ENGINE_OPTION(tokenizer_pre), "Model", "NAME", NULL, 0, 0, NULL,
         NULL, "Pre-tokenizer to use instead of the one the model names, or where it names none."},
        {"generation-config", OPTION_CHOICE, ENGINE_OPTION(generation_config), "Model", "SOURCE", "auto", 0,
         0, "auto|vllm", NULL,
         "Where sampling defaults and end tokens come from: the model folder's generation_config.json, or "
         "nowhere."},
        {"gpu-memory-utilization", OPTION_FLOAT, ENGINE_OPTION(memory_share), "Memory", "SHARE", "0.9", 0.01,
         1, NULL, NULL,
         "Share of the device's memory to use; on a CPU, of what is available on the machine or in its "
         "cgroup. KV never takes "
         "more than max-num-seqs x max-model-len needs."},
        {"kv-cache-memory-bytes", OPTION_INT, ENGINE_OPTION(kv_bytes), "Memory", "BYTES", "0", 0, 9e18, NULL,
         NULL, "Memory for KV blocks; overrides gpu-memory-utilization. 0: unset."},
        {"block-size", OPTION_INT, ENGINE_OPTION(block_size), "Memory", "TOKENS", "16", 16, 256, NULL, NULL,
         "Tokens of a KV block: 16, 32, 64, 128 or 256."},
        {"enable-prefix-caching", OPTION_BOOL, ENGINE_OPTION(prefix_caching), "Memory", NULL, "true", 0, 0,
         NULL, NULL, "Share the KV blocks of equal prefixes."},
        {"cache-secret", OPTION_STRING, ENGINE_OPTION(cache_secret), "Memory", "TEXT", NULL, 0, 0, NULL,
         "QUIRE_CACHE_SECRET",
         "Secret of the KV block keys, to be shared by processes that exchange blocks; random if unset."},
        {"max-num-seqs", OPTION_INT, ENGINE_OPTION(max_num_seqs), "Scheduling", "N", "64", 1, 4096, NULL,
         NULL, "Most sequences in one step."},
        {"max-num-batched-tokens", OPTION_INT, ENGINE_OPTION(max_num_batched_tokens), "Scheduling", "N",
         "2048", 1, 1 << 20, NULL, NULL, "Most tokens computed in one step, prompts and answers together."},
        {"enable-chunked-prefill", OPTION_BOOL, ENGINE_OPTION(chunked_prefill), "Scheduling", NULL, "true", 0,
         0, NULL, NULL, "Compute long prompts in chunks beside running answers."},
        {"long-prefill-token-threshold", OPTION_INT, ENGINE_OPTION(long_prefill), "Scheduling", "N", "0", 0,
         1 << 30, NULL, NULL, "Most prompt tokens of one request in one step; 0 is no limit."},
        {"scheduling-policy", OPTION_CHOICE, ENGINE_OPTION(policy), "Scheduling", "POLICY", "fcfs", 0, 0,
         "fcfs|priority", NULL,
         "Order of waiting requests: as they come, or by their priority (lower first)."},
        {"baseline-static", OPTION_CHOICE, ENGINE_OPTION(baseline_static), "Scheduling", "POLICY", "none", 0,
         0, "none|batch|reserve|batch,reserve", NULL,
         "For measurement only, to show what the scheduler gives (`quire bench ablation`). batch: a batch of "
         "sequences is admitted together and nothing more until all of it have ended; reserve: each sequence "
         "takes KV for --max-model-len tokens when it is admitted. Slower; answers are the same bits."},
        {"max-queue", OPTION_INT, ENGINE_OPTION(max_queue), "Scheduling", "N", "1024", 0, 1 << 20, NULL, NULL,
         "Requests that may wait beyond max-num-seqs; more are answered 503 with Retry-After."},
        {"threads", OPTION_INT, ENGINE_OPTION(threads), "Machine", "N", "0", 0, 1024, NULL, NULL,
         "Compute threads; 0 is the cores that the process may use."},
        {"cpu-bind", OPTION_CHOICE, ENGINE_OPTION(cpu_bind), "Machine", "BIND", "node", 0, 0,
         "node|core|none", NULL,
         "Where compute threads run. node: on a machine of several memory nodes each keeps to one, and "
         "weights "
         "lie with the threads that read them; core: besides, each has a CPU of its own, for machines that "
         "nothing else uses; none: where the system likes."},
        {"cpu", OPTION_CHOICE, ENGINE_OPTION(cpu), "Machine", "ISA", NULL, 0, 0, "ref|avx2|avx512|amx",
         "QUIRE_CPU", "Highest instruction set to use; the best that the machine has if unset."},
    };
    size_t n = 0;
    while (n < ENGINE_OPTION_ROWS && rows[n].name) n++;
    memcpy(table, rows, n * sizeof *table);
    return n;
}

size_t vector_option_rows(struct option *table, size_t at) {
    const struct option rows[VECTOR_OPTION_ROWS] = {
        {"runner", OPTION_CHOICE, ENGINE_OPTION(runner), "Vectors", "RUNNER", "auto", 0, 0,
         "auto|generate|pooling", NULL,
         "What to open the model for: text, or vectors and scores; auto is pooling for encoders, for models "
         "that name a pooling type and for decoders without an output matrix."},
        {"pooling-type", OPTION_CHOICE, ENGINE_OPTION(pooling_type), "Vectors", "TYPE", "auto", 0, 0,
         "auto|mean|cls|last|rank", NULL,
         "How the tokens' vectors become one; rank scores pairs with a cross-encoder's head. auto is what "
         "the "
         "file says, else rank with a head, cls for other encoders and last for decoders."},
        {"matryoshka", OPTION_BOOL, ENGINE_OPTION(matryoshka), "Vectors", NULL, "false", 0, 0, NULL, NULL,
         "The model's vectors may be cut: requests may ask for fewer dimensions."},
    };
    memcpy(table, rows, sizeof rows);
    return VECTOR_OPTION_ROWS;
}
