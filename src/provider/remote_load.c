#include "provider/remote.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"

#define OBJECT "libgarret-remote.so"

/* Where the code is that calls this: the library, or a program that holds all of it. */
static char *beside_us(void)
{
	Dl_info info;
	const char *slash;

	if (!dladdr((void *)(uintptr_t)remote_load, &info) || !info.dli_fname)
		return NULL;
	slash = strrchr(info.dli_fname, '/');
	return slash ? xasprintf("%.*s/" OBJECT, (int)(slash - info.dli_fname), info.dli_fname)
		     : NULL;
}

static void *open_object(void)
{
	autofree char *near = beside_us();
	void *object = near ? dlopen(near, RTLD_NOW | RTLD_LOCAL) : NULL;

	return object ? object : dlopen(GARRET_LIB_DIR "/" OBJECT, RTLD_NOW | RTLD_LOCAL);
}

int remote_load(const struct remote_table **ret, struct garret_error *err)
{
	/* Loading it twice at once is fine: the second gets the same object. */
	static _Atomic(const struct remote_table *) loaded;
	const struct remote_table *table = atomic_load(&loaded);
	void *object;

	if (!table) {
		object = open_object();
		if (!object)
			return garret_fail(err, GARRET_UNSUPPORTED,
					   "remote providers need " OBJECT ": %s", dlerror());
		table = dlsym(object, REMOTE_SYMBOL);
		if (!table || table->version != REMOTE_TABLE ||
		    table->spec_bytes != sizeof(struct box_spec) + sizeof(struct provider_ops))
			return garret_fail(err, GARRET_UNSUPPORTED,
					   OBJECT " is of another version of Garret");
		atomic_store(&loaded, table);
	}
	*ret = table;
	return 0;
}
