/* A server of OpenAI's API whose delays are exact: what the load generator reports is compared with them.
 *
 * usage: mock_server [ttft=MS] [tpot=MS] [slots=N] [chunk=N] [context=N] [added=N] [tokenizer=0|1] [usage=0|1]
 *                    [metrics=0|1] [die_after=N] [cut_every=N] [busy_every=N] [short_by=N] [refuse=0|1]
 *
 * Prints "ready http://127.0.0.1:PORT". A token is a word or a token id; a chat message has `added` tokens more. The
 * first token of a request comes ttft after its slot is free, each further one tpot after the last; the times are
 * absolute, so they do not drift. With `row`, a token takes row longer for each request beyond `knee` that runs then.
 * Flags of a server are taken so that `quire tune` can start it: --max-num-seqs sets slots, others change nothing. Ends
 * when standard input is closed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct option {
    const char *name;
    double value;
};
static struct option options[] = {{"ttft", 20},   {"tpot", 5},        {"slots", 100000}, {"chunk", 1},     {"context", 8192},
                                  {"added", 7},   {"tokenizer", 1},   {"usage", 1},      {"metrics", 1},   {"die_after", 0},
                                  {"cut_every", 0}, {"busy_every", 0}, {"short_by", 0},  {"refuse", 0},
                                  {"row", 0},     {"knee", 0},        {0}};

static double option(const char *name) {
    for (struct option *o = options; o->name; o++)
        if (!strcmp(o->name, name)) return o->value;
    abort();
}

struct conn {
    int fd;
    char *in;
    size_t n_in, cap_in;
    bool chat, running, queued;
    long prompt, want, sent, left_out;
    uint64_t start_us, due_us;
    struct conn *next; /* in the queue */
};

static int poll_fd;
static struct conn **heap;
static size_t n_heap, cap_heap;
static struct conn *queue_head, *queue_tail;
static long n_running, n_waiting, n_answers, n_requests;
static double ttft_us, tpot_us, slots, row_us, knee;
static long chunk;

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void push(struct conn *c) {
    if (n_heap == cap_heap) heap = realloc(heap, (cap_heap = cap_heap ? 2 * cap_heap : 64) * sizeof *heap);
    size_t i = n_heap++;
    for (; i && heap[(i - 1) / 2]->due_us > c->due_us; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static struct conn *pop(void) {
    struct conn *top = heap[0], *last = heap[--n_heap];
    size_t i = 0, k;
    while ((k = 2 * i + 1) < n_heap) {
        if (k + 1 < n_heap && heap[k + 1]->due_us < heap[k]->due_us) k++;
        if (last->due_us <= heap[k]->due_us) break;
        heap[i] = heap[k];
        i = k;
    }
    heap[i] = last;
    return top;
}

static void put(struct conn *c, const char *data, size_t n) {
    while (n) {
        ssize_t w = send(c->fd, data, n, MSG_NOSIGNAL); /* cheaper than write */
        if (w > 0) {
            data += w;
            n -= (size_t)w;
        } else if (w < 0 && errno != EAGAIN && errno != EINTR) {
            return;
        }
    }
}

static void reply(struct conn *c, const char *status, const char *type, const char *body) {
    char head[256];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", status, type,
                     strlen(body));
    put(c, head, (size_t)n);
    put(c, body, strlen(body));
}

/* Words of all strings that follow `key`, or numbers of a list. */
static long count_tokens(const char *body, const char *key, long added) {
    long n = 0;
    for (const char *p = body; (p = strstr(p, key));) {
        p += strlen(key);
        while (*p == ' ' || *p == ':') p++;
        bool in_word = false;
        if (*p == '[') {
            for (; *p && *p != ']'; p++) {
                bool digit = *p >= '0' && *p <= '9';
                n += digit && !in_word;
                in_word = digit;
            }
        } else if (*p == '"') {
            for (p++; *p && *p != '"'; p++) {
                bool letter = *p != ' ';
                if (*p == '\\' && p[1]) p++;
                n += letter && !in_word;
                in_word = letter;
            }
            n += added;
        }
    }
    return n;
}

static long number_after(const char *body, const char *key, long otherwise) {
    const char *p = strstr(body, key);
    return p ? strtol(p + strlen(key), NULL, 10) : otherwise;
}

static void begin(struct conn *c, uint64_t start_us) {
    c->running = true;
    n_running++;
    c->start_us = start_us;
    c->sent = 0;
    c->due_us = c->start_us + (uint64_t)ttft_us;
    push(c);
}

struct event { /* an event as a chunk of the body */
    char bytes[600];
    size_t n;
};

static struct event make_event(const char *json) {
    struct event e;
    e.n = (size_t)snprintf(e.bytes, sizeof e.bytes, "%x\r\ndata: %s\n\n\r\n", (unsigned)strlen(json) + 8, json);
    return e;
}

static void event(struct conn *c, const char *json) {
    struct event e = make_event(json);
    put(c, e.bytes, e.n);
}

static struct event text, delta; /* those of a token, made once: the server shall cost little */

static void make_tokens(void) {
    text = make_event("{\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
                      "\"model\":\"mock\",\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,"
                      "\"finish_reason\":null}],\"usage\":null}");
    delta = make_event("{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                       "\"model\":\"mock\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,"
                       "\"finish_reason\":null}]}");
}

static void next_request(struct conn *c);

static void drop(struct conn *c) {
    epoll_ctl(poll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    c->fd = -1;
}

static void end(struct conn *c) {
    char json[400];
    c->running = false;
    n_running--;
    n_answers++;
    bool cut = option("cut_every") > 0 && n_answers % (long)option("cut_every") == 0;
    if (!cut) {
        event(c, c->chat ? "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}"
                         : "{\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}");
        if (option("usage") > 0) {
            snprintf(json, sizeof json,
                     "{\"choices\":[],\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,\"total_tokens\":%ld,"
                     "\"prompt_tokens_details\":{\"cached_tokens\":%ld}}}",
                     c->prompt, c->want, c->prompt + c->want, c->prompt / 4);
            event(c, json);
        }
        put(c, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
    } else {
        drop(c);
    }
    if (option("die_after") > 0 && n_answers >= (long)option("die_after")) exit(0);
    if (queue_head && n_running < slots) {
        struct conn *q = queue_head;
        queue_head = q->next;
        if (!queue_head) queue_tail = NULL;
        n_waiting--;
        q->queued = false;
        begin(q, c->due_us); /* when the slot was to be free: lateness does not add up */
    }
    if (c->fd >= 0) next_request(c);
}

/* The tokens that are due by now. A stream that has left is still timed to its end: its slot was in use. */
static void step(struct conn *c) {
    if (c->fd >= 0) put(c, c->chat ? delta.bytes : text.bytes, c->chat ? delta.n : text.n);
    c->sent += chunk;
    if (c->sent >= c->want) {
        end(c);
        return;
    }
    double beyond = (double)n_running > knee ? (double)n_running - knee : 0;
    if (row_us > 0)
        c->due_us += (uint64_t)(tpot_us + beyond * row_us);
    else
        c->due_us = c->start_us + (uint64_t)(ttft_us + (double)c->sent * tpot_us);
    push(c);
}

static void generate(struct conn *c, const char *body) {
    n_requests++;
    if (option("busy_every") > 0 && n_requests % (long)option("busy_every") == 0) {
        reply(c, "503 Service Unavailable", "application/json", "{\"error\":{\"message\":\"the queue is full\"}}");
        return;
    }
    if (option("refuse") > 0 && (strstr(body, "\"tools\"") || strstr(body, "\"response_format\""))) {
        reply(c, "400 Bad Request", "application/json",
              "{\"error\":{\"message\":\"only \\\"text\\\" is \\u00fcblich\\nhere\",\"type\":\"invalid_request_error\"}}");
        return;
    }
    const char *model = strstr(body, "\"model\":");
    if (model) model += 8 + strspn(model + 8, " ");
    if (!model || strncmp(model, "\"mock\"", 6) != 0) {
        reply(c, "404 Not Found", "application/json", "{\"error\":{\"message\":\"no such model\"}}");
        return;
    }
    c->prompt = c->chat ? count_tokens(body, "\"content\"", (long)option("added")) : count_tokens(body, "\"prompt\"", 0);
    c->want = number_after(body, "\"max_completion_tokens\":", number_after(body, "\"max_tokens\":", 16));
    c->want -= (long)option("short_by");
    if (c->want < 1) c->want = 1;
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    put(c, head, sizeof head - 1);
    if (c->chat) event(c, "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}");
    if (n_running < slots) {
        begin(c, now_us());
        return;
    }
    c->queued = true;
    c->next = NULL;
    n_waiting++;
    if (queue_tail)
        queue_tail->next = c;
    else
        queue_head = c;
    queue_tail = c;
}

static void tokenize(struct conn *c, const char *body) {
    long n = count_tokens(body, "\"prompt\"", 0);
    char *out = malloc((size_t)n * 8 + 64);
    size_t at = (size_t)sprintf(out, "{\"count\":%ld,\"tokens\":[", n);
    for (long i = 0; i < n; i++) at += (size_t)sprintf(out + at, "%s%ld", i ? "," : "", 100 + i % 500);
    strcpy(out + at, "]}");
    reply(c, "200 OK", "application/json", out);
    free(out);
}

static void metrics(struct conn *c) {
    char out[1200];
    snprintf(out, sizeof out,
             "# TYPE vllm:num_requests_running gauge\n"
             "vllm:num_requests_running{model_name=\"mo}ck\"} %ld\nvllm:num_requests_waiting{engine=\"0\"} %ld\n"
             "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n"
             "vllm:prefix_cache_queries_total %ld\nvllm:prefix_cache_hits_total %ld\nvllm:num_preemptions_total %ld\n"
             "vllm:request_queue_time_seconds_sum %g\nvllm:request_queue_time_seconds_count %ld\n"
             "process_resident_memory_bytes 123456789\n",
             n_running, n_waiting, n_requests * 100, n_requests * 40, n_requests, 0.002 * (double)n_requests, n_requests);
    reply(c, "200 OK", "text/plain", out);
}

static void handle(struct conn *c, const char *line, const char *body) {
    char json[300];
    if (!strncmp(line, "GET /v1/models ", 15)) {
        snprintf(json, sizeof json,
                 "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"owned_by\":\"test\","
                 "\"max_model_len\":%ld}]}",
                 (long)option("context"));
        reply(c, "200 OK", "application/json", json);
    } else if (!strncmp(line, "POST /v1/completions ", 21) || !strncmp(line, "POST /v1/chat/completions ", 26)) {
        c->chat = line[10] == 'h';
        generate(c, body);
    } else if (!strncmp(line, "POST /tokenize ", 15) && option("tokenizer") > 0) {
        tokenize(c, body);
    } else if (!strncmp(line, "GET /health ", 12)) {
        reply(c, "200 OK", "application/json", "{}");
    } else if (!strncmp(line, "GET /metrics ", 13) && option("metrics") > 0) {
        metrics(c);
    } else {
        reply(c, "404 Not Found", "application/json", "{\"error\":{\"message\":\"no such route\"}}");
    }
}

/* Handles a request that is there as a whole; one at a time. */
static void next_request(struct conn *c) {
    char *end_of_head = c->n_in ? strstr(c->in, "\r\n\r\n") : NULL;
    if (!end_of_head || c->running || c->queued) return;
    char *length = strcasestr(c->in, "\r\nContent-Length:");
    size_t n = length && length < end_of_head ? strtoul(length + 17, NULL, 10) : 0;
    size_t whole = (size_t)(end_of_head + 4 - c->in) + n;
    if (c->n_in < whole) return;
    char kept = c->in[whole];
    c->in[whole] = 0;
    handle(c, c->in, end_of_head + 4);
    c->in[whole] = kept;
    memmove(c->in, c->in + whole, c->n_in - whole + 1);
    c->n_in -= whole;
}

static void receive(struct conn *c) {
    for (;;) {
        if (c->cap_in < c->n_in + 65536) c->in = realloc(c->in, c->cap_in = 2 * c->n_in + 65536);
        ssize_t n = read(c->fd, c->in + c->n_in, c->cap_in - c->n_in - 1);
        if (n < 0) break;
        if (!n) {
            drop(c);
            return;
        }
        c->n_in += (size_t)n;
        c->in[c->n_in] = 0;
    }
    next_request(c);
}

static void take(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = calloc(1, sizeof *c);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        struct option *o = options;
        if (!strncmp(argv[i], "--max-num-seqs=", 15)) {
            for (; strcmp(o->name, "slots"); o++) {}
            o->value = atof(argv[i] + 15);
            continue;
        }
        if (!strncmp(argv[i], "--", 2)) continue;
        while (o->name && (strncmp(o->name, argv[i], strlen(o->name)) || argv[i][strlen(o->name)] != '=')) o++;
        if (!o->name) return fprintf(stderr, "mock_server: %s?\n", argv[i]), 2;
        o->value = atof(argv[i] + strlen(o->name) + 1);
    }
    ttft_us = 1000 * option("ttft");
    tpot_us = 1000 * option("tpot");
    slots = option("slots");
    row_us = 1000 * option("row");
    knee = option("knee");
    chunk = (long)option("chunk");
    make_tokens();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_a = sizeof a;
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&a, &n_a))
        return perror("mock_server"), 1;
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener}, in = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e);
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &in);
    printf("ready http://127.0.0.1:%d\n", ntohs(a.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[512];
        uint64_t now = now_us(), left = n_heap ? heap[0]->due_us > now ? heap[0]->due_us - now : 0 : 1000000;
        struct timespec t = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
        int n = epoll_pwait2(poll_fd, events, 512, &t, NULL);
        for (int i = 0; i < n; i++) {
            if (!events[i].data.ptr) return 0;
            if (events[i].data.ptr == &listener)
                take(listener);
            else
                receive(events[i].data.ptr);
        }
        /* When it is late it still takes what has come. */
        for (int i = 0; i < 512 && n_heap && heap[0]->due_us <= now_us(); i++) step(pop());
    }
}
