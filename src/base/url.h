/* Addresses of servers of OpenAI's API, as people type them. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include <stddef.h>

/* Bytes of url without slashes and one "/v1" at its end: where a path such as "/v1/models" is added. */
size_t url_server_len(const char *url);

#endif
