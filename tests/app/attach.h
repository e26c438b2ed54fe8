/* Attachments as the tests make them. */
#ifndef TESTS_APP_ATTACH_H
#define TESTS_APP_ATTACH_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "world.h"

#define ID "0A1B2C3D-0000-4000-8000-000000000000"
#define PNG "\x89PNG\r\n\x1a\n"

static inline struct garret_app_attachment file(const char *name, const char *text)
{
	return (struct garret_app_attachment){ .size = sizeof(struct garret_app_attachment),
					       .id = ID,
					       .name = name,
					       .data = text,
					       .bytes = strlen(text) };
}

/* A picture of so many bytes; free its data. */
static inline struct garret_app_attachment picture(const char *name, size_t bytes)
{
	struct garret_app_attachment a = file(name, "");
	char *data = xcalloc(1, bytes);

	memcpy(data, PNG, 8);
	a.data = data;
	a.bytes = bytes;
	return a;
}

static inline struct garret_app_turn *turn_of(struct world *x, uint64_t image_bytes,
					      uint64_t text_bytes)
{
	const struct garret_app_turn_options o = { .size = sizeof(o),
						   .image_bytes = image_bytes,
						   .text_bytes = text_bytes };
	struct garret_app_turn *turn = NULL;

	assert_int_equal(garret_app_turn_new(x ? &x->run : NULL, &o, &turn, NULL), 0);
	return turn;
}

static inline struct garret_app_attached attach(struct garret_app_turn *turn,
						struct garret_app_attachment a)
{
	struct garret_app_attached r;

	assert_int_equal(garret_app_attach(turn, &a, &r, NULL), 0);
	return r;
}

static inline void is_at(struct world *x, const char *path, const char *want)
{
	char *text = world_get(x, path);

	assert_non_null(text);
	assert_string_equal(text, want);
	free(text);
}

#endif
