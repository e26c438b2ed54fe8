/*
 * What the engine, its zygote and the slot helpers say to each other.  All of
 * them are the same executable, so the messages are plain structs; they travel
 * over SEQPACKET pairs that nobody else holds.
 *
 *	engine -> zygote   struct zygote_setup once, then struct slot_order
 *	zygote -> engine   struct zygote_note
 *	engine -> helper   struct build_order, once
 *	helper -> engine   struct slot_note
 */
#ifndef ENGINE_WIRE_H
#define ENGINE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/cgroup.h"
#include "proto/engine.h"

/* Ids inside a session of the `host` runtime. */
#define MAIN_ID 1000u
#define INIT_ID 65530u
/* Kernel ids of one slot, and of the range on disk: 0..65535 and one more. */
#define SLOT_IDS 65537u

#define NAME_CAP 24 /* of a slot: a handle in hex */
#define ETC_CAP 4096
/* workspace, home, /var/tmp, /etc/hosts, and the volumes */
#define MOUNTS_MAX (ENGINE_VOLUMES_MAX + 4)

enum filter_kind { FILTER_NONE, FILTER_NO_SUID, FILTER_NO_SUID_SGID, FILTER_FILES, FILTERS };

/* Descriptors: the cgroup directories in cgroup_mask's order, the sessions directory,
 * the lock of those who make, and a file with the filters behind each other, when there are any. */
struct zygote_setup {
	uint32_t cgroup_mask; /* bit per enum cgroup_hierarchy */
	uint32_t cgroup_mode;
	uint32_t disk_id; /* D, first id of the range on disk */
	uint32_t filter_bytes[FILTERS];
	char etc_copy[ETC_CAP]; /* names below /etc, separated by blanks */
};

enum zygote_note_type { ZYGOTE_READY, ZYGOTE_FAILED, ZYGOTE_EXITED };

struct zygote_note {
	uint32_t type;
	int32_t pid, status;     /* EXITED */
	struct garret_error err; /* FAILED */
};

/* Descriptors: the helper's end of its socket; a recycled network namespace, or none. */
struct slot_order {
	char name[NAME_CAP];
	uint32_t base;    /* S, first kernel id of the slot */
	uint32_t project; /* of what it has on the disk, or 0 */
};

struct build_mount {
	uint32_t uid, gid; /* owner on disk; what the main user's files get */
	uint8_t read_only, file;
	uint8_t plain;    /* it has the slot's ids already */
	uint8_t image;    /* it is the directory of an image, which is mounted instead */
	uint32_t project; /* to be given to everything in it first, or 0 */
	uint64_t image_bytes;
	char inside[ENGINE_PATH_MAX + 1];
};

enum build_flags {
	BUILD_CONNECTED = 1,
	BUILD_HOST_NET = 2,
	BUILD_OWN_ROOT = 4,
	BUILD_FILES = 8, /* nothing but the one mount, which is read-only */
};

/* Descriptors: the init socket, then a detached mount for each of mounts. */
struct build_order {
	uint32_t flags, filter; /* enum filter_kind */
	uint32_t pids;          /* of the main user */
	uint32_t max_pids;      /* to which that may be raised later */
	uint64_t tmpfs_bytes;
	uint8_t nonce[INIT_NONCE];
	char hostname[ENGINE_ID_MAX + 1];
	char work_dir[ENGINE_PATH_MAX + 1];
	uint32_t n_mounts;
	struct build_mount mounts[MOUNTS_MAX]; /* parents before children; only n_mounts are sent */
};

#define BUILD_ORDER_BYTES(n) \
	(offsetof(struct build_order, mounts) + (n) * sizeof(struct build_mount))

enum slot_note_type {
	SLOT_READY,  /* prepared; brings the pid, its pidfd and the network namespace */
	SLOT_BUILT,  /* from the session's first process: init begins now */
	SLOT_FAILED, /* err says what failed; the sender has ended */
};

struct slot_note {
	uint32_t type;
	int32_t pid;
	struct garret_error err;
};

#endif
