/*
 * The protocol between init (pid 1 of a session) and whoever owns the session.
 *
 * Natively one frame is one SEQPACKET message of at most INIT_FRAME_MAX bytes.
 * Descriptors travel only towards init; one that comes from it ends the session
 * for the receiver.  A frame begins with a header of 16 bytes:
 *
 *	u32 length (of the whole frame)  u16 type  u16 zero  u64 request
 *
 * `request` is chosen by the owner and repeated in the answer (0 in frames that
 * nobody asked for).  A type that init doesn't know is answered with ERROR and
 * is not fatal.  After HELLO both sides know major.minor; init serves its own
 * major and the one before.
 *
 * A run is named by 16 bytes that the owner chooses.  A connection gets a run's
 * frames (STARTED, OUT, SPOOLED, EXIT) only after it sent RUN or ATTACH for it.
 */
#ifndef PROTO_INIT_H
#define PROTO_INIT_H

#include <stdint.h>

#include "proto/cursor.h"

#define INIT_MAJOR 1
#define INIT_MINOR 2 /* 1: LIST, STDIN_HELD, PROCESSES.  2: RESUME */

#define INIT_HEADER_BYTES 16
#define INIT_FRAME_MAX (64 * 1024)
#define INIT_OUT_MAX (60 * 1024) /* bytes of output in one OUT frame */
#define INIT_RUN_ID 16
#define INIT_NONCE 16
#define INIT_CWD_MAX 4096
/* The kernel's own bounds: one string 128 KiB with its NUL, all of them 2 MiB here. */
#define INIT_STRING_MAX (128 * 1024 - 1)
#define INIT_STRINGS_MAX (2 * 1024 * 1024 - 64 * 1024)
#define INIT_ARGC_MAX 16384
#define INIT_HEAD_BYTES (64 * 1024) /* of each stream kept in init; more goes to the spool */
#define INIT_WINDOW (256 * 1024)    /* bytes of OUT in flight for a stream (INIT_RUN_STREAM) */
#define INIT_RUNS_MAX 4096          /* live and not yet forgotten */
#define INIT_SPOOLS_MAX 16          /* pairs of spool files that no run has taken yet */
#define INIT_WORKERS 4              /* slots for file workers */

enum init_type {
	/* to init */
	INIT_HELLO = 1,   /* u16 major, u16 minor, nonce[16] */
	INIT_RUN = 2,     /* struct init_run, below */
	INIT_ATTACH = 3,  /* id[16]: send what this connection hasn't got, then go on */
	INIT_DETACH = 4,  /* id[16]: send nothing more of this run here */
	INIT_ACK = 5,     /* id[16], u8 stream, u64 offset: everything before it was taken */
	INIT_STOP = 6,    /* id[16], u32 grace_ms: answered by DONE once the run has ended */
	INIT_SIGNAL = 7,  /* id[16], u32 signo, u8 to (0 the process, 1 its process group) */
	INIT_STDIN = 8,   /* id[16], the bytes; none = end of file.  INIT_RUN_STDIN runs */
	INIT_WINCH = 9,   /* id[16], u16 rows, u16 columns */
	INIT_FORGET = 10, /* id[16]: the owner has the whole result */
	/* u32 index, + two descriptors: files for stdout and stderr.  In a container init makes
	 * them itself, and removes them when the run is forgotten */
	INIT_SPOOL = 11,
	INIT_PING = 12, /* answered by PONG */
	/* u32 slot, + a worker's end of a socket pair: DONE when a file worker serves it
	 * (proto/files.h).  One that had the slot is killed. */
	INIT_WORKER = 13,
	INIT_LIST = 14, /* LISTED until everything was said, then DONE */
	/* u32: runs that begin from now on may have so many processes of their user (RLIMIT_NPROC),
	 * at most as many as init was started with for a maximum; 0: that */
	INIT_PROCESSES = 16,
	/*
	 * u64 owner (a number by chance, never 0): this connection speaks for it from now on, and
	 * all others end.  Answered by RESUMED, when that is so.  Who was cut off asks again
	 * what has a higher number than the answer says, and nothing is done twice.
	 */
	INIT_RESUME = 17,

	/* from init */
	INIT_HELLO_OK = 64,    /* u16 major, u16 minor, nonce[16], u32 runs known */
	INIT_STARTED = 65,     /* id[16], u32 pid inside */
	INIT_OUT = 66,         /* id[16], u8 stream (1, 2), u64 offset, the bytes */
	INIT_SPOOLED = 67,     /* id[16], u8 stream, u32 index, u64 bytes there so far */
	INIT_EXIT = 68,        /* id[16], struct init_exit */
	INIT_ERROR = 69,       /* u32 garret_code, u32 errno, str message */
	INIT_DONE = 70,        /* the request was carried out */
	INIT_PONG = 71,        /* u32 live runs, u32 background processes */
	INIT_STDIN_TAKEN = 72, /* id[16], u64: so many bytes of stdin are written or dropped */
	/* u32 n, n times u32 index: spool pairs that no run has taken yet (in the first frame);
	 * u32 n, n times struct init_known */
	INIT_LISTED = 73,
	/* id[16], u64: so many bytes of stdin arrived (captured runs), and the top bit when its end
	 * did: they outlive their sender */
	INIT_STDIN_HELD = 74,
	/* u64: the highest number of that owner's requests that was carried out, or refused */
	INIT_RESUMED = 75,
};

enum init_run_flags {
	/*
	 * Captured (neither of the two below): init reads both streams, keeps up
	 * to INIT_HEAD_BYTES of each and sends them as OUT; what is more goes,
	 * from offset 0 on, to a spool pair given ahead by SPOOL.  When no pair is
	 * there the run waits for one (its writer blocks) until its deadline.
	 */
	INIT_RUN_FDS = 1,      /* stdin, stdout, stderr are three descriptors in this message */
	INIT_RUN_STREAM = 2,   /* OUT is sent live, at most INIT_WINDOW unacknowledged; no spool */
	INIT_RUN_PTY = 4,      /* with STREAM: a terminal of the session; one stream (1) */
	INIT_RUN_STDIN = 8,    /* stdin is a pipe fed by INIT_STDIN; otherwise /dev/null */
	INIT_RUN_BODY_FD = 16, /* the strings are in a descriptor (the first), not in the frame */
};

/*
 * Fields of RUN in order.  The strings: argc arguments, then envc variables as
 * NAME=VALUE, each u32 length, bytes, NUL.  Env is laid over the session's own.
 */
struct init_run {
	uint8_t id[INIT_RUN_ID];
	uint32_t flags;
	uint32_t timeout_ms;   /* 0: none.  Covers start, run and drain */
	uint64_t output_limit; /* bytes of both streams together; 0: none */
	uint16_t rows, columns;
	uint32_t argc, envc;
	const char *cwd;        /* absolute inside, or "" for the work directory */
	uint32_t strings_bytes; /* of the encoded strings */
	const uint8_t *strings; /* borrowed; NULL with INIT_RUN_BODY_FD */
};

/* Why a run ended other than by itself. */
enum init_cause {
	INIT_CAUSE_NONE,
	INIT_CAUSE_TIMEOUT,
	INIT_CAUSE_OUTPUT_LIMIT,
	INIT_CAUSE_STOP, /* an INIT_STOP request */
	INIT_CAUSES
};

/* What failed, when the program never ran (exit_code is then 126, 127 or 125). */
enum init_step { INIT_STEP_NONE, INIT_STEP_EXEC, INIT_STEP_CWD, INIT_STEP_SPAWN, INIT_STEPS };

struct init_exit {
	uint8_t cause;        /* enum init_cause */
	uint8_t step;         /* enum init_step */
	uint8_t oom;          /* the kernel killed something of this session for memory meanwhile */
	uint8_t spooled[2];   /* bit per stream: its bytes are in the spool from 0 on */
	int32_t exit_code;    /* as a shell reports it: status, or 128 + signal */
	uint32_t sys;         /* errno behind step */
	uint32_t spool_index; /* valid when something is spooled */
	uint32_t background;  /* processes of the session that no run owns */
	uint64_t total[2];    /* bytes of stdout and stderr (after the limit: what was kept) */
	uint64_t wall_us, user_us, system_us, max_rss_bytes;
};

/* A run that wasn't forgotten yet, as LIST tells of it. */
struct init_known {
	uint8_t id[INIT_RUN_ID];
	uint32_t flags; /* of its RUN */
	bool ended;     /* EXIT is due at once */
	uint64_t age_us;
	uint64_t stdin_held; /* bytes of input that arrived */
	bool stdin_ended;    /* with its end, or nobody reads any more */
};
#define INIT_HELD_END (1ull << 63)
#define INIT_KNOWN_BYTES (INIT_RUN_ID + 4 + 1 + 8 + 8 + 1)

struct init_header {
	uint32_t length;
	uint16_t type;
	uint64_t request;
};

/* Begin a frame in buf (INIT_FRAME_MAX bytes) and close it; 0 when it didn't fit. */
void init_begin(struct put *p, void *buf, uint16_t type, uint64_t request);
uint32_t init_end(struct put *p);
/* False when the header is short or lies about the length. */
bool init_parse(struct get *g, const void *frame, size_t n, struct init_header *ret);

void init_put_run(struct put *p, const struct init_run *run);
/* Checks every bound of the struct; the strings themselves are checked below. */
bool init_get_run(struct get *g, struct init_run *ret);
/*
 * Make argv and envp arrays (pointers into strings; caller frees the two arrays)
 * from `bytes` bytes.  False when counts, lengths or NULs don't agree, a
 * variable has no name or no '='.
 */
bool init_strings(const uint8_t *strings, size_t bytes, uint32_t argc, uint32_t envc,
		  char ***ret_argv, char ***ret_envp);

void init_put_known(struct put *p, const struct init_known *k);
void init_get_known(struct get *g, struct init_known *ret);

void init_put_exit(struct put *p, const struct init_exit *e);
bool init_get_exit(struct get *g, struct init_exit *ret);

#endif
