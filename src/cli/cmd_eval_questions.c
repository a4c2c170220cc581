#include "cli/eval_run.h"
int cmd_eval_questions(bool needle, int argc, char **argv) {
    return 1;
}
int cmd_eval_compare(int argc, char **argv) {
    return 1;
}
