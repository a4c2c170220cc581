#include "backend/cpu/select.h"

/* Ranges this short are sorted by insertion. */
#define SELECT_SHORT 16

static void swap(uint64_t *a, uint64_t *b) {
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

static void insertion_sort(uint64_t *keys, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j && keys[j - 1] < key; j--) keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Min-heap: the smallest goes to the end, again and again. */
static void sift_down(uint64_t *heap, size_t n, size_t i) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[i] <= heap[child]) return;
        swap(&heap[i], &heap[child]);
    }
}

static void heap_sort(uint64_t *keys, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(keys, n, i);
    for (size_t end = n; end > 1; end--) {
        swap(&keys[0], &keys[end - 1]);
        sift_down(keys, end - 1, 0);
    }
}

/* Hoare's partition around the median of three: keys before the result are >= those from it on, and neither
 * side is empty. n >= 3. */
static size_t split(uint64_t *keys, size_t n) {
    uint64_t *a = &keys[0], *b = &keys[n / 2], *c = &keys[n - 1];
    if (*a < *b) swap(a, b);
    if (*b < *c) swap(b, c);
    if (*a < *b) swap(a, b);
    uint64_t pivot = *b;
    size_t i = 0, j = n - 1;
    for (;;) {
        while (keys[i] > pivot) i++;
        while (keys[j] < pivot) j--;
        if (i >= j) return j + 1;
        swap(&keys[i++], &keys[j--]);
    }
}

/* Twice the binary logarithm: splits beyond it are taken for an unlucky input, and a heap ends it. */
static unsigned split_limit(size_t n) {
    unsigned limit = 0;
    for (; n; n >>= 1) limit += 2;
    return limit;
}

static void sort_within(uint64_t *keys, size_t n, unsigned limit) {
    while (n > SELECT_SHORT) {
        if (!limit--) {
            heap_sort(keys, n);
            return;
        }
        size_t mid = split(keys, n);
        sort_within(keys + mid, n - mid, limit);
        n = mid;
    }
    insertion_sort(keys, n);
}

void select_sort(uint64_t *keys, size_t n) {
    sort_within(keys, n, split_limit(n));
}

void select_largest(uint64_t *keys, size_t n, size_t k) {
    unsigned limit = split_limit(n);
    while (k && k < n && n > SELECT_SHORT) {
        if (!limit--) {
            heap_sort(keys, n);
            return;
        }
        size_t mid = split(keys, n);
        if (k < mid) {
            n = mid;
        } else {
            keys += mid;
            n -= mid;
            k -= mid;
        }
    }
    if (k && k < n) insertion_sort(keys, n);
}
