/*
 * What a change of the policy may be: the body of PUT /policy, and the overrides
 * file.  A change is checked whole, on a copy of the settings; what is wrong is
 * said in the published form.
 */
#ifndef CORE_POLICY_BODY_H
#define CORE_POLICY_BODY_H

#include "core/config.h"
#include "core/provider.h"
#include "core/service.h"
#include "net/json.h"

/* The settings as a change would have them. Strings are borrowed: from the change, or as before. */
struct policy_draft {
	struct config config;          /* first: the table's offsets are of this */
	const struct json_t *runtimes; /* of the change, or NULL */
};

extern const struct json_field policy_fields[];         /* of struct policy_draft */
extern const struct json_field policy_runtime_fields[]; /* of struct runtime_entry */

/*
 * Lay change over c.  *ret has its own array of runtimes (policy_draft_release()).
 * False with e->n, or with *no for an alias that isn't there.
 */
bool policy_draft(const struct config *c, const struct limit_bounds *bounds,
		  const struct json_t *change, struct policy_draft *ret, struct json_errors *e,
		  struct refusal *no);
void policy_draft_release(struct policy_draft *d);

#endif
