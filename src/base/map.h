/*
 * A hash map from a string to a pointer.  Keys are copied, values are borrowed.
 * Keys may come from strangers: the hash is seeded once per map.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_entry;
struct map {
	struct map_entry **buckets;
	size_t n_buckets, count;
	uint64_t seed;
};

void map_init(struct map *m);
void map_release(struct map *m);
void *map_find(const struct map *m, const char *key);   /* NULL is an answer */
void *map_set(struct map *m, const char *key, void *v); /* the value it replaced, or NULL */
void *map_remove(struct map *m, const char *key);       /* the value, or NULL */

/* Call fn for each entry; fn must not change the map. */
void map_foreach(const struct map *m, void (*fn)(const char *key, void *value, void *ctx),
		 void *ctx);

#endif
