/*
 * The policy: the part of the settings that may change while the daemon runs.
 *
 * A change is checked whole, recorded, and then in force at once: for ceilings
 * and time-outs because everything reads the settings anew, for the limits of
 * living sessions because the provider is asked to change them.  Changes are
 * made one after the other.  What was recorded lies over the settings of the
 * environment again after a restart.
 */
#ifndef CORE_POLICY_H
#define CORE_POLICY_H

#include "base/list.h"
#include "core/provider.h"
#include "core/registry.h"
#include "io/loop.h"

struct service;
struct session;

struct policy {
	struct limit_bounds bounds;
	struct list waiting; /* of struct change; the first one is being recorded */
	struct loop_later next;
	bool recording;
	struct json_t *overlay; /* all changes as one, or NULL */
	char *file, *seen;      /* stamps of the overrides file: as taken, as looked at; "" */
	int file_errno;         /* that was told of already */
	bool started;
};

void policy_init(struct policy *p);
void policy_release(struct policy *p);
/* From the registry. */
void policy_on_row(struct service *svc, const struct policy_row *row);
/* Before anything is served, with the bounds known: lay what was recorded over the settings. */
void policy_start(struct service *svc);
/* Read the overrides file again if it has changed. */
void policy_look_at_file(struct service *svc);

/* The limits that a session of this runtime has now. */
struct runtime_entry;
struct box_limits policy_limits(const struct service *svc, const struct runtime_entry *r);
/* It was being opened while the policy changed. */
void policy_session_opened(struct session *s);

#endif
