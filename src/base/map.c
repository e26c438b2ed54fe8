#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"

struct map_entry {
	struct map_entry *next;
	uint64_t hash;
	void *value;
	char key[];
};

static uint64_t hash_of(const struct map *m, const char *key)
{
	uint64_t h = m->seed ^ 0x9E3779B97F4A7C15u;

	for (; *key; key++) {
		h ^= (unsigned char)*key;
		h *= 0x00000100000001B3u;
		h ^= h >> 29;
	}
	return h ^ (h >> 32);
}

void map_init(struct map *m)
{
	*m = (struct map){ .n_buckets = 16 };
	m->buckets = xcalloc(m->n_buckets, sizeof(*m->buckets));
	if (getrandom(&m->seed, sizeof(m->seed), 0) != (ssize_t)sizeof(m->seed))
		m->seed = (uint64_t)(uintptr_t)m;
}

void map_release(struct map *m)
{
	for (size_t i = 0; i < m->n_buckets; i++) {
		struct map_entry *e = m->buckets[i], *next;

		for (; e; e = next) {
			next = e->next;
			free(e);
		}
	}
	free(m->buckets);
	*m = (struct map){ 0 };
}

static struct map_entry **slot_of(const struct map *m, const char *key, uint64_t hash)
{
	struct map_entry **p;

	for (p = &m->buckets[hash & (m->n_buckets - 1)]; *p; p = &(*p)->next)
		if ((*p)->hash == hash && !strcmp((*p)->key, key))
			break;
	return p;
}

void *map_find(const struct map *m, const char *key)
{
	struct map_entry *e = *slot_of(m, key, hash_of(m, key));

	return e ? e->value : NULL;
}

static void grow(struct map *m)
{
	size_t n = m->n_buckets * 2;
	struct map_entry **buckets = xcalloc(n, sizeof(*buckets));

	for (size_t i = 0; i < m->n_buckets; i++) {
		struct map_entry *e = m->buckets[i], *next;

		for (; e; e = next) {
			next = e->next;
			e->next = buckets[e->hash & (n - 1)];
			buckets[e->hash & (n - 1)] = e;
		}
	}
	free(m->buckets);
	m->buckets = buckets;
	m->n_buckets = n;
}

void *map_set(struct map *m, const char *key, void *v)
{
	uint64_t hash = hash_of(m, key);
	struct map_entry **p = slot_of(m, key, hash), *e = *p;
	size_t n;

	if (e) {
		void *old = e->value;
		e->value = v;
		return old;
	}
	n = strlen(key) + 1;
	e = xcalloc(1, sizeof(*e) + n);
	memcpy(e->key, key, n);
	e->hash = hash;
	e->value = v;
	*p = e;
	if (++m->count > m->n_buckets)
		grow(m);
	return NULL;
}

void *map_remove(struct map *m, const char *key)
{
	struct map_entry **p = slot_of(m, key, hash_of(m, key)), *e = *p;
	void *v;

	if (!e)
		return NULL;
	v = e->value;
	*p = e->next;
	free(e);
	m->count--;
	return v;
}

void map_foreach(const struct map *m, void (*fn)(const char *key, void *value, void *ctx),
		 void *ctx)
{
	for (size_t i = 0; i < m->n_buckets; i++)
		for (struct map_entry *e = m->buckets[i]; e; e = e->next)
			fn(e->key, e->value, ctx);
}
