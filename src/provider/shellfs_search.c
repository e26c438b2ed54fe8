#include "provider/shellfs_impl.h"

static void none(struct shellfs_op *op)
{
	shellfs_failf(op, GARRET_UNSUPPORTED, "searching");
}
const struct shellfs_kind shellfs_glob = { .begin = none };
const struct shellfs_kind shellfs_grep = { .begin = none };
