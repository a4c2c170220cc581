#include "base/url.h"

#include <string.h>

size_t url_server_len(const char *url) {
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    return n >= 3 && !strncmp(url + n - 3, "/v1", 3) ? n - 3 : n;
}
