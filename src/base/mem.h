/*
 * Memory: small fixed allocations abort when there is none (the programs are
 * restartable by design); sizes that come from outside are bounded first and
 * use try_alloc(), which answers NULL.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size); /* zeroed */
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed; NULL with errno ENOMEM when there is none. */
void *try_alloc(size_t size);

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
