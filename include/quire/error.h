/* Error codes and the error text that every fallible function of Quire reports through.
 *
 * A function that can fail returns 0 or one negative code of this enum and, where its caller passes a
 * `struct error`, leaves one line of human text in it: what was wrong, the value, and what is allowed.
 * The text never holds addresses, keys or prompt text. */
#ifndef QUIRE_ERROR_H
#define QUIRE_ERROR_H

enum quire_code {
    QUIRE_OK = 0,
    QUIRE_EINVAL = -1,       /* a value from outside is wrong: the text names the field and what is allowed */
    QUIRE_ENOMEM = -2,       /* memory could not be had */
    QUIRE_EIO = -3,          /* the operating system refused: open, read, bind, ... */
    QUIRE_ENOTFOUND = -4,    /* a file, model, key or name does not exist */
    QUIRE_EFORMAT = -5,      /* a file or message is malformed */
    QUIRE_EUNSUPPORTED = -6, /* well formed, but not supported */
    QUIRE_ELIMIT = -7,       /* a budget or limit was exceeded: depth, steps, size, context length */
    QUIRE_EBUSY = -8,        /* a bounded queue is full: try again later */
    QUIRE_ECANCELED = -9,    /* the caller gave up, or the engine is stopping */
    QUIRE_EINTERNAL = -10    /* a fault of ours; reported, never hidden */
};

#define QUIRE_ERROR_TEXT_BYTES 512

struct error {
    int code;          /* enum quire_code of the last failure, 0 if none */
    const char *param; /* static string: the request field or flag at fault, NULL if none applies */
    char text[QUIRE_ERROR_TEXT_BYTES];
};

#endif
