/*
 * The protocol between garretd (or the CLI) and the engine: SEQPACKET, one
 * frame per message, the header of proto/init.h.  Messages carry ids, digests
 * and numbers; the only paths are names *inside* a session.  A session is named
 * by a handle that the engine chose.
 *
 * The engine re-checks everything against its own configuration.  A request
 * that its table doesn't allow, or that is not as described here, is answered
 * with ENGINE_ERROR; a frame with a false header ends the connection.
 */
#ifndef PROTO_ENGINE_H
#define PROTO_ENGINE_H

#include <stdint.h>

#include "proto/cursor.h"
#include "proto/init.h"

#define ENGINE_MAJOR 1
#define ENGINE_MINOR 2
#define ENGINE_FRAME_MAX (32 * 1024)
#define ENGINE_VOLUMES_MAX 32
#define ENGINE_PATH_MAX 1024
#define ENGINE_ID_MAX 64
#define ENGINE_OWNER_TAG 16

enum engine_type {
	/* requests */
	ENGINE_HELLO = 1,  /* u16 major, u16 minor */
	ENGINE_OPEN = 2,   /* struct engine_open, + the init socket, + a directory per volume */
	ENGINE_CLOSE = 3,  /* u64 handle, u8 enum engine_close: answered when nothing lives */
	ENGINE_USAGE = 4,  /* u64 handle */
	ENGINE_DOCTOR = 5, /* answered by DOCTOR_ROWs and DONE */
	/* u8: 1 with sizes, which takes long.  A WORKSPACE for each that is kept, and DONE */
	ENGINE_WORKSPACES = 6,
	/* str id that no session has open, u8 bits of enum engine_purge, u64 used_ms: CONFLICT
	 * when it was used at another time than that; 0: whenever */
	ENGINE_PURGE = 7,
	ENGINE_OWNER = 8,   /* tag[16]: for whom this connection keeps sessions, before any */
	ENGINE_ADOPT = 9,   /* u64 handle of a durable session whose owner has gone: OPENED */
	ENGINE_SETTLE = 10, /* the owner's durable sessions that it did not adopt end */
	ENGINE_LIMITS = 12, /* struct engine_limits: answered when they are in force */

	/* answers, and DIED, which nobody asked for */
	ENGINE_HELLO_OK = 64, /* struct engine_hello */
	ENGINE_OPENED = 65,   /* struct engine_opened */
	ENGINE_DONE = 66,
	ENGINE_ERROR = 67,      /* u32 garret_code, u32 errno, str message */
	ENGINE_USAGE_OK = 68,   /* struct engine_usage */
	ENGINE_DOCTOR_ROW = 69, /* u8 level (0 ok, 1 weaker, 2 missing), str name, str text */
	ENGINE_DIED = 70,       /* u64 handle, u8 enum engine_death */
	ENGINE_WORKSPACE = 71,  /* struct engine_workspace */
};

enum engine_network { ENGINE_NET_NONE, ENGINE_NET_HOST, ENGINE_NET_BRIDGE, ENGINE_NETS };

enum engine_open_flags {
	/* The first descriptor is a connected socket, not a listening one: the
	 * session ends when its other end is closed. */
	ENGINE_OPEN_CONNECTED = 1,
	/* Nothing is kept: the workspace is removed with the session. */
	ENGINE_OPEN_EPHEMERAL = 2,
	/* Only over a workspace that is there already; NOT_FOUND otherwise. */
	ENGINE_OPEN_ATTACH = 4,
	/*
	 * A session that holds nothing but a workspace that is there already, read-only,
	 * and has no runs.  Limits, volumes and a network can't be asked for with it.
	 * Beside a session of the same id, and several times; a purge ends it.
	 */
	ENGINE_OPEN_FILES = 8,
	/*
	 * It stays when its owner or the engine goes, however they go: a connection of the
	 * same user with the same tag takes it over.  Its init listens: not with
	 * ENGINE_OPEN_CONNECTED, nor with ENGINE_OPEN_FILES.
	 */
	ENGINE_OPEN_DURABLE = 16,
};

/* Bits of engine_hello.limits and, but for the disk, of engine_limits.which. */
enum engine_limit {
	ENGINE_LIMIT_MEMORY = 1,
	ENGINE_LIMIT_SWAP = 2,
	ENGINE_LIMIT_CPUS = 4,
	ENGINE_LIMIT_SHARES = 8,
	ENGINE_LIMIT_PIDS = 16,
	ENGINE_LIMIT_DISK = 32,
};

enum engine_cgroup { ENGINE_CGROUP_NONE, ENGINE_CGROUP_V1, ENGINE_CGROUP_V2, ENGINE_CGROUP_HYBRID };

enum engine_close {
	ENGINE_CLOSE_PLAIN, /* the workspace is kept */
	ENGINE_CLOSE_PURGE, /* nothing is */
	ENGINE_CLOSE_KEEP,  /* the write layer is kept as well, for the next open of this id */
	ENGINE_CLOSES,
};

enum engine_purge { ENGINE_PURGE_WORKSPACE = 1, ENGINE_PURGE_LAYER = 2, ENGINE_PURGE_ALL = 3 };

/* What a session got of the write layer of an earlier one of its id. */
enum engine_layer {
	ENGINE_LAYER_NONE, /* there is none */
	ENGINE_LAYER_USED,
	ENGINE_LAYER_SUSPECT,       /* of another boot of the host: dropped */
	ENGINE_LAYER_OTHER_RUNTIME, /* dropped */
	ENGINE_LAYERS,
};

enum engine_death { ENGINE_DEATH_EXIT, ENGINE_DEATH_OOM, ENGINE_DEATH_CLOSED };

struct engine_volume {
	const char *inside; /* absolute, normal; the work directory is allowed */
	uint8_t read_only;
};

/* Limits: 0 is "the engine's default", never "unlimited"; above the bound is refused. */
struct engine_open {
	const char *id;      /* session id; names the workspace */
	const char *runtime; /* "host" */
	const char *work_dir;
	const char *hostname;
	uint8_t nonce[INIT_NONCE];
	uint32_t flags;
	uint8_t network;
	uint64_t memory_bytes, memory_swap_bytes; /* memory+swap together; 0: as memory */
	uint32_t cpu_millis;                      /* thousandths of one CPU */
	uint32_t cpu_shares;                      /* Docker's scale, 1024 = normal */
	uint32_t pids;
	uint64_t tmpfs_bytes; /* size of /tmp */
	/* Of the workspace, and the same once more of what else the session has on the disk (home,
	 * /var/tmp, the work directory of an ephemeral one); volumes are not counted.  0: the
	 * engine's default, which may be no limit. */
	uint64_t disk_bytes;
	uint32_t n_volumes;
	struct engine_volume volumes[ENGINE_VOLUMES_MAX];
};

/* New limits of a living session; the numbers as in engine_open. */
struct engine_limits {
	uint64_t handle;
	uint8_t which; /* of enum engine_limit: the others stay as they are */
	uint64_t memory_bytes, memory_swap_bytes;
	uint32_t cpu_millis, cpu_shares, pids;
};

struct engine_hello {
	uint16_t major, minor;
	uint8_t cgroup;   /* enum engine_cgroup */
	uint8_t networks; /* bit per enum engine_network that can be given */
	uint8_t limits;   /* enum engine_limit that can be given */
	uint8_t seccomp;  /* 1 on, 0 off (test build) */
	uint64_t max_memory_bytes;
	uint32_t max_cpu_millis, max_pids, max_sessions;
	uint64_t max_tmpfs_bytes;
};

struct engine_opened {
	uint64_t handle;
	uint32_t pid;                       /* of init, on the host */
	uint64_t start_time, pid_namespace; /* proof for adoption */
	uint32_t build_us;                  /* from the request's arrival until init was ready */
	uint8_t layer;                      /* enum engine_layer */
};

/* A counter that can't be had is UINT64_MAX. */
struct engine_usage {
	uint64_t memory_bytes, memory_limit_bytes, cpu_us, pids, oom_kills;
	uint64_t io_read_bytes, io_written_bytes; /* of devices; with cgroup2 only */
	uint64_t disk_bytes; /* of the workspace; where it is limited by quota */
};

/* A workspace on the disk, whether a session has it open or not. */
struct engine_workspace {
	const char *id;    /* borrowed */
	uint64_t bytes;    /* on disk */
	uint64_t files;    /* names below it, those of directories too */
	uint64_t used_ms;  /* wall time of the last open or close */
	uint64_t layer_ms; /* the same of its write layer; 0: there is none */
	uint8_t ours;      /* it carries our mark: made, or used, by an engine */
	uint8_t partial;   /* bytes and files are what was counted until time was over */
};

bool engine_parse(struct get *g, const void *frame, size_t n, struct init_header *ret);
void engine_begin(struct put *p, void *buf /* ENGINE_FRAME_MAX */, uint16_t type, uint64_t request);
#define engine_end init_end

void engine_put_open(struct put *p, const struct engine_open *o);
/* Bounds and enums only; what they mean is the engine's business. Strings are borrowed. */
bool engine_get_open(struct get *g, struct engine_open *ret);
void engine_put_limits(struct put *p, const struct engine_limits *l);
bool engine_get_limits(struct get *g, struct engine_limits *ret);
void engine_put_hello(struct put *p, const struct engine_hello *h);
bool engine_get_hello(struct get *g, struct engine_hello *ret);
void engine_put_opened(struct put *p, const struct engine_opened *o);
bool engine_get_opened(struct get *g, struct engine_opened *ret);
void engine_put_usage(struct put *p, const struct engine_usage *u);
bool engine_get_usage(struct get *g, struct engine_usage *ret);
void engine_put_workspace(struct put *p, const struct engine_workspace *w);
bool engine_get_workspace(struct get *g, struct engine_workspace *ret);

#endif
