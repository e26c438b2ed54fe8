/*
 * Lines of a file that an expression matches.  The dialect is PCRE2's with
 * Unicode classes, and a plain text (FILE_FIXED) is the same without
 * metacharacters.  An expression sees one line at a time, without its \n and
 * with its \r, which `.` doesn't match and `$` may stand before.
 *
 * Files need not be UTF-8: what isn't is matched by nothing but a plain text,
 * the rest of the line is searched all the same.  A line longer than
 * GREP_PIECE is searched in pieces; a match over the border of two isn't found.
 */
#ifndef TEXT_GREP_H
#define TEXT_GREP_H

#include <stdbool.h>

#include "base/error.h"
#include "proto/files.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

#define GREP_PIECE (1024 * 1024)
/*
 * What one line may cost: a step is some 20 ns, so this is well below a second;
 * the memory is for what it may go back to.
 */
#define GREP_STEPS_MAX 10000000
#define GREP_DEPTH_MAX 250000
#define GREP_HEAP_KIB (64 * 1024)
#define GREP_BINARY_BYTES 8192 /* a NUL in here makes a file binary */

enum grep_result {
	GREP_DONE,
	GREP_STOP,       /* found() said so */
	GREP_BINARY,     /* not searched */
	GREP_UNREADABLE, /* errno says why */
};

struct grep {
	struct pcre2_real_code_8 *valid, *any; /* for lines that are UTF-8, and for others */
	struct pcre2_real_match_data_8 *data;
	struct pcre2_real_match_context_8 *limits;
	char *fixed; /* or a plain text */
	size_t fixed_bytes;
	char *buf;
	/* Set by the caller; 0, GREP_STOP or -code. */
	int (*found)(void *ctx, struct file_match *m, struct garret_error *err);
	int (*check)(void *ctx, struct garret_error *err); /* called often: may it go on? NULL */
	void *ctx;
};

/* flags: FILE_FIXED, FILE_NO_CASE. -GARRET_INVALID says what is wrong and where. */
int grep_compile(struct grep *g, const char *pattern, uint32_t flags, struct garret_error *err);
void grep_done(struct grep *g);

/* enum grep_result, or -code.  binary_too: search a file that looks binary. */
int grep_fd(struct grep *g, int fd, bool binary_too, struct garret_error *err);
/* The same for what is in memory. */
int grep_bytes(struct grep *g, const void *data, size_t n, bool binary_too,
	       struct garret_error *err);

#endif
