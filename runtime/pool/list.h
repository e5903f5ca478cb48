/*
 * Intrusive doubly linked lists over records in an array, by index: no pointers, no allocation,
 * O(1). The link sits at a fixed offset in the record, so that one list type serves all.
 */
#ifndef KVF_POOL_LIST_H
#define KVF_POOL_LIST_H

#include <stddef.h>
#include <stdint.h>

struct pool_link {
    int32_t next, prev;
};

struct pool_list {
    int32_t head, tail; /* -1: empty. head is the oldest */
    uint32_t length;
    char *links; /* address of record 0's link */
    size_t stride;
};

static inline struct pool_link *pool_list_link(const struct pool_list *list, int32_t at) {
    return (struct pool_link *)(list->links + (size_t)at * list->stride);
}

static inline void pool_list_open(struct pool_list *list, void *first_link, size_t stride) {
    *list = (struct pool_list){.head = -1, .tail = -1, .links = first_link, .stride = stride};
}

static inline void pool_list_push_tail(struct pool_list *list, int32_t at) {
    *pool_list_link(list, at) = (struct pool_link){.next = -1, .prev = list->tail};
    if (list->tail >= 0)
        pool_list_link(list, list->tail)->next = at;
    else
        list->head = at;
    list->tail = at;
    list->length++;
}

static inline void pool_list_push_head(struct pool_list *list, int32_t at) {
    *pool_list_link(list, at) = (struct pool_link){.next = list->head, .prev = -1};
    if (list->head >= 0)
        pool_list_link(list, list->head)->prev = at;
    else
        list->tail = at;
    list->head = at;
    list->length++;
}

static inline void pool_list_remove(struct pool_list *list, int32_t at) {
    struct pool_link link = *pool_list_link(list, at);
    if (link.prev >= 0)
        pool_list_link(list, link.prev)->next = link.next;
    else
        list->head = link.next;
    if (link.next >= 0)
        pool_list_link(list, link.next)->prev = link.prev;
    else
        list->tail = link.prev;
    list->length--;
}

static inline int32_t pool_list_pop_head(struct pool_list *list) {
    int32_t at = list->head;
    if (at >= 0) pool_list_remove(list, at);
    return at;
}

/* Next after `at`, or the head for -1. */
static inline int32_t pool_list_next(const struct pool_list *list, int32_t at) {
    return at < 0 ? list->head : pool_list_link(list, at)->next;
}

#endif
