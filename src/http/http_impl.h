/* Private to http.c and loop.c. */
#ifndef HTTP_HTTP_IMPL_H
#define HTTP_HTTP_IMPL_H

#include "http/http.h"

#include <curl/curl.h>

struct transfer {
    struct http *http;
    CURL *easy;            /* NULL until first used */
    struct transfer *next; /* of the free ones */
    bool busy, began;      /* began: status and type are known */
    struct http_request request;
    struct http_answer answer; /* libcurl writes its `why` */
};

struct http {
    struct http_config config;
    struct curl_slist *post_headers;
    CURLM *multi;
    int epoll;
    uint64_t timer_us; /* when libcurl wants to be called; UINT64_MAX: not */
    struct transfer *transfers, *free;
    size_t n_transfers, n_active;
    uint64_t n_done;
    bool global; /* libcurl is initialised */
};

/* Takes t out of the loop and tells its end. */
void http_finish(struct transfer *t, enum http_end end);
/* Tells which of our ends libcurl's is, and keeps status and type. */
enum http_end http_conclude(struct transfer *t, CURLcode rc);

/* loop.c */
int loop_open(struct http *h);
void loop_close(struct http *h);

#endif
