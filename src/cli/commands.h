/* Tables of commands: those of `quire`, and those that commands have below them. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *about;
    const char *arguments; /* what follows the name in the lines of usage; NULL where the table has `usage` */
};

struct command_table {
    const char *program;            /* "quire bench": what messages begin with */
    const char *what;               /* what one is called: "benchmark" */
    const char *head;               /* above the lines of usage, or "" */
    const char *usage;              /* "COMMAND ...", in place of a line for each; or NULL */
    const char *tail;               /* below the list */
    const struct command *commands; /* ended by a NULL name */
};

/* Runs the command that argv[1] names; the list for --help, and nothing or something else is refused with the
 * nearest name. Returns the exit code. */
int commands_run(const struct command_table *table, int argc, char **argv);

#endif
