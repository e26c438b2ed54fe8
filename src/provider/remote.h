/*
 * What the second shared object gives to the library: the providers of other machines, which
 * need an HTTP client.  It is loaded when the first of them is opened, so that nobody else pays
 * for libcurl.
 */
#ifndef PROVIDER_REMOTE_H
#define PROVIDER_REMOTE_H

#include "provider/docker.h"
#include "provider/sandboxd.h"

#define REMOTE_TABLE 1 /* changes with what is in here */

struct remote_table {
	unsigned version;  /* REMOTE_TABLE, or it is of another build */
	size_t spec_bytes; /* sizeof(struct box_spec), ...: the same */
	const struct provider_ops *sandboxd;
	int (*sandboxd_new)(const struct sandboxd_config *config, struct provider **ret,
			    struct garret_error *err);
	struct provider *(*sandboxd_free)(struct provider *p);
	bool (*sandboxd_is_ours)(const struct box *box);
	const struct provider_ops *docker;
	int (*docker_new)(const struct docker_config *config, struct provider **ret,
			  struct garret_error *err);
	struct provider *(*docker_free)(struct provider *p);
};

#define REMOTE_SYMBOL "garret_remote_table"
extern const struct remote_table garret_remote_table;

/* The object, loaded once and kept: UNSUPPORTED with the reason when it can't be. */
int remote_load(const struct remote_table **ret, struct garret_error *err);

#endif
