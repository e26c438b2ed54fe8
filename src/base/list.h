/* Intrusive doubly linked lists: the link lives in the item, the head is a link. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)          \
	{                        \
		&(name), &(name) \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

/* Safe on an item that is in no list, when it was initialised. */
static inline void list_remove(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	list_init(item);
}

/* Append all items of from, in their order; from is empty then. */
static inline void list_move_all(struct list *head, struct list *from)
{
	while (!list_empty(from)) {
		struct list *item = from->next;

		list_remove(item);
		list_append(head, item);
	}
}

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_entry(ptr, type, member) container_of(ptr, type, member)

/* The item may be removed inside the loop, its successor may not. */
#define list_foreach(pos, head, member)                                         \
	for (__typeof__(pos) pos##_next_ =                                      \
		     (pos = list_entry((head)->next, __typeof__(*pos), member), \
		     list_entry(pos->member.next, __typeof__(*pos), member));   \
	     &pos->member != (head); pos = pos##_next_,                         \
			     pos##_next_ = list_entry(pos->member.next, __typeof__(*pos), member))

#endif
