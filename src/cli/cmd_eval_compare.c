/* quire eval compare */
#include "cli/eval_options.h"

#include "base/error.h"

#include <stdlib.h>

#define AT(member) offsetof(struct eval_options, member)

static const struct option table[] = {
    {"max-ppl-increase", OPTION_STRING, AT(max_ppl_increase), "Limits", "SHARE", "1%", 0, 0, NULL, NULL,
     "How much higher the second perplexity may be: 1% or 0.01."},
    {"max-kl-increase", OPTION_FLOAT, AT(max_kl_increase), "Limits", "NATS", "0.01", 0, 100, NULL, NULL,
     "How much larger the second mean KL divergence from the reference may be."},
    {"max-top1-drop", OPTION_STRING, AT(max_top1_drop), "Limits", "SHARE", "1%", 0, 0, NULL, NULL,
     "By how many points the share of equal first choices may fall."},
    {"max-accuracy-drop", OPTION_STRING, AT(max_accuracy_drop), "Limits", "SHARE", "1%", 0, 0, NULL, NULL,
     "By how many points an accuracy may fall."},
    {"resamples", OPTION_INT, AT(resamples), "Statistics", "N", "10000", 100, 10000000, NULL, NULL,
     "Of the paired bootstrap."},
    {"seed", OPTION_INT, AT(task_seed), "Statistics", "N", "0", 0, 9.2e18, NULL, NULL,
     "Of the paired bootstrap."},
    {"json", OPTION_STRING, AT(json), "Result", "FILE", NULL, 0, 0, NULL, NULL,
     "The comparison as JSON, too."},
    {0},
};

int cmd_eval_compare(int argc, char **argv) {
    struct eval_options o = {0};
    struct eval_thresholds t;
    struct options_state *state = NULL;
    struct error err = {0};
    enum eval_verdict verdict = EVAL_UNCLEAR;
    int n_args = 0,
        rc = cli_options(
            "eval compare", "FIRST.json SECOND.json [options]",
            "Whether the second result is as good as the first. Exit code 0: within all limits; 3: beyond "
            "one; 4: the figures cannot tell.",
            table, argc, argv, &n_args, &o, &state);
    if (rc >= 0) return rc;
    rc = n_args == 2
             ? 0
             : error_set(&err, QUIRE_EINVAL, "usage: quire eval compare FIRST.json SECOND.json [options]");
    t.kl_increase = o.max_kl_increase;
    if (!rc) rc = share_read("max-ppl-increase", o.max_ppl_increase, &t.ppl_increase, &err);
    if (!rc) rc = share_read("max-top1-drop", o.max_top1_drop, &t.top1_drop, &err);
    if (!rc) rc = share_read("max-accuracy-drop", o.max_accuracy_drop, &t.accuracy_drop, &err);
    if (!rc)
        rc = eval_compare(argv[1], argv[2], &t, (size_t)o.resamples, (uint64_t)o.task_seed, o.json, stdout,
                          &verdict, &err);
    options_free(state);
    if (rc) return cli_fail("eval compare", &err);
    return verdict == EVAL_PASS ? EXIT_OK : verdict == EVAL_FAIL ? EXIT_WORSE : EXIT_UNCLEAR;
}
