/* The JSON parser against jansson, which shares no code with it: same verdict, same tree. */
#include "json.h"

#include <locale.h>

#include <jansson.h>

#include "tap.h"

static kvf_error error;

static bool same_tree(const struct json_value *a, const json_t *b) {
    switch (a->kind) {
    case JSON_KIND_NULL: return json_is_null(b);
    case JSON_KIND_BOOL: return json_is_boolean(b) && a->truth == json_is_true(b);
    case JSON_KIND_INTEGER: return json_is_integer(b) && a->integer == json_integer_value(b);
    case JSON_KIND_REAL: return json_is_real(b) && a->real == json_real_value(b);
    case JSON_KIND_TEXT:
        return json_is_string(b) && a->bytes == json_string_length(b) &&
               strlen(a->text) == a->bytes && strcmp(a->text, json_string_value(b)) == 0;
    case JSON_KIND_ARRAY:
        if (!json_is_array(b) || a->count != json_array_size(b)) return false;
        for (uint32_t i = 0; i < a->count; i++)
            if (!same_tree(a->items[i], json_array_get(b, i))) return false;
        return true;
    case JSON_KIND_OBJECT:
        if (!json_is_object(b) || a->count != json_object_size(b)) return false;
        for (uint32_t i = 0; i < a->count; i++) {
            const json_t *member = json_object_get(b, a->items[i]->key);
            if (!member || !same_tree(a->items[i], member)) return false;
            if (json_member(a, a->items[i]->key) != a->items[i]) return false;
        }
        return true;
    }
    return false;
}

/* Parse with both from memory that ends where the text does; true if they agree. */
static bool agree(const char *text, size_t bytes, bool *good) {
    struct arena arena = {0};
    const struct json_value *ours = NULL;
    char *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, text, bytes);
    kvf_status status = json_parse(&arena, "x", exact, bytes, &ours, &error);
    json_t *theirs = json_loadb(exact, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    bool same = (status == KVF_OK) == (theirs != NULL) && (!theirs || same_tree(ours, theirs));
    *good = theirs != NULL;
    if (!same) tap_note("%s on %.*s", kvf_status_name(status), (int)bytes, text);
    json_decref(theirs);
    arena_free(&arena);
    free(exact);
    return same;
}

static void test_cases(void) {
    static const char *const cases[] = {"null",
                                        "true",
                                        "false",
                                        "tru",
                                        "nul",
                                        "0",
                                        "-0",
                                        "-",
                                        "01",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "1E-2",
                                        "0.1",
                                        "-0.0",
                                        "1e308",
                                        "1e309",
                                        "-1e309",
                                        "1e-400",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "-9223372036854775808",
                                        "-9223372036854775809",
                                        "123456789012345678",
                                        "0.30000000000000004",
                                        "2.2250738585072011e-308",
                                        "1.7976931348623157e308",
                                        "\"\"",
                                        "\"a\"",
                                        "\"",
                                        "\"\\\"",
                                        "\"\\\\\"",
                                        "\"\\n\\t\\b\\f\\r\\/\"",
                                        "\"\\x\"",
                                        "\"\\u0041\"",
                                        "\"\\u004\"",
                                        "\"\\u0000\"",
                                        "\"\\ud83d\\ude00\"",
                                        "\"\\ud83d\"",
                                        "\"\\ude00\"",
                                        "\"\\ud83d\\u0041\"",
                                        "\"\\ud83d\\ue000\"",
                                        "\"\\udbff\\udfff\"",
                                        "\"\\uffff\"",
                                        "\"\xc3\xa9\"",
                                        "\"\xc3\"",
                                        "\"\xc0\x80\"",
                                        "\"\xe0\x80\x80\"",
                                        "\"\xe2\x82\xac\"",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xe0\xa0\x80\"",
                                        "\"\xf0\x90\x80\x80\"",
                                        "\"\xed\x9f\xbf\"",
                                        "\"\xee\x80\x80\"",
                                        "\"\xf4\x8f\xbf\xbf\"",
                                        "\"\xef\xbf\xbf\"",
                                        "\"\xc2\x80\"",
                                        "\"\xdf\xbf\"",
                                        "\"\xe0\xa0\"",
                                        "\"\xf0\x90\x80\"",
                                        "\"\xf0\x9f\x98\x80\"",
                                        "\"\xf0\x80\x80\x80\"",
                                        "\"\xf4\x90\x80\x80\"",
                                        "\"\xf5\x80\x80\x80\"",
                                        "\"\x80\"",
                                        "\"\xff\"",
                                        "\"\n\"",
                                        "\"\x1f\"",
                                        "\"\x7f\"",
                                        "[]",
                                        "[ ]",
                                        "[1]",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "[1,2]",
                                        "[",
                                        "]",
                                        "[[]]",
                                        "[[]",
                                        "{}",
                                        "{ }",
                                        "{\"a\":1}",
                                        "{\"a\":1,}",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{a:1}",
                                        "{\"a\":1 \"b\":2}",
                                        "{\"a\":1,\"b\":[{},null]}",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":1,\"\\u0061\":2}",
                                        "{",
                                        "}",
                                        "",
                                        " ",
                                        "\t\n\r 1 \t\n\r",
                                        "1 1",
                                        "1,",
                                        "//x\n1",
                                        "\xef\xbb\xbf{}",
                                        "'a'",
                                        "NaN",
                                        "Infinity",
                                        "+1",
                                        "0x10",
                                        "{\"\":1}"};
    int bad = 0, good = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool accepted;
        bad += !agree(cases[i], strlen(cases[i]), &accepted);
        good += accepted;
    }
    is(bad, 0, "both agree on every case");
    ok(good > 40 && good < 70, "%d of them are good", good);
}

static uint64_t seed = 1234567;

static uint32_t next(uint32_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* A random document of the tokens that matter. */
static size_t write_random(char *out, size_t room, int depth) {
    static const char *const atoms[] = {"0",    "-1",        "12.5e3",    "true", "false",
                                        "null", "\"k\"",     "\"\"",      "1e-7", "\"\\u00e9\"",
                                        "-0.0", "\"a\\nb\"", "4294967296"};
    size_t at = 0;
    uint32_t kind = depth > 4 ? 2 : next(4);
    if (kind > 1 || room < 200)
        return (size_t)snprintf(out, room, "%s", atoms[next(sizeof atoms / sizeof atoms[0])]);
    out[at++] = kind ? '[' : '{';
    uint32_t count = next(5);
    for (uint32_t i = 0; i < count && room - at > 200; i++) {
        if (i) out[at++] = ',';
        if (next(4) == 0) out[at++] = ' ';
        if (!kind) at += (size_t)snprintf(out + at, room - at, "\"%c%u\":", 'a' + (int)i, next(3));
        at += write_random(out + at, (room - at) / 2, depth + 1);
    }
    out[at++] = kind ? ']' : '}';
    return at;
}

static void test_random(void) {
    static const char noise[] = "{}[]\",:\\0123456789.eE+-tfnaul \n\xc3\xa9";
    int bad = 0, good = 0;
    char text[4096];
    for (int round = 0; round < 40000; round++) {
        size_t bytes = write_random(text, sizeof text, 0);
        uint32_t changes = next(3);
        for (uint32_t i = 0; i < changes; i++)
            text[next((uint32_t)bytes)] = noise[next(sizeof noise - 1)];
        bool accepted;
        bad += !agree(text, bytes, &accepted);
        good += accepted;
    }
    is(bad, 0, "both agree on 40,000 random documents");
    ok(good > 10000 && good < 35000, "%d of them are good", good);
}

static kvf_status parse(const char *text, size_t bytes) {
    struct arena arena = {0};
    const struct json_value *value;
    kvf_status status = json_parse(&arena, "file.json", text, bytes, &value, &error);
    arena_free(&arena);
    return status;
}

static void test_limits(void) {
    char text[2 * JSON_DEPTH + 2];
    memset(text, '[', JSON_DEPTH);
    memset(text + JSON_DEPTH, ']', JSON_DEPTH);
    is(parse(text, 2 * (size_t)JSON_DEPTH), KVF_OK, "the deepest nesting");
    memset(text, '[', JSON_DEPTH + 1);
    memset(text + JSON_DEPTH + 1, ']', JSON_DEPTH + 1);
    is(parse(text, 2 * (size_t)JSON_DEPTH + 2), KVF_ERROR_BUNDLE, "one level more");
    contains(error.text, "nested too deeply", "says so");

    size_t room = (size_t)JSON_VALUES * 2 + 100;
    char *many = malloc(room);
    for (int values = JSON_VALUES - 1; values <= JSON_VALUES; values++) {
        size_t at = 0;
        many[at++] = '[';
        for (int i = 0; i < values; i++) {
            many[at++] = '1';
            many[at++] = i + 1 < values ? ',' : ']';
        }
        is(parse(many, at), values < JSON_VALUES ? KVF_OK : KVF_ERROR_BUNDLE,
           "as many values as allowed, and one more");
    }
    for (int members = JSON_MEMBERS; members <= JSON_MEMBERS + 1; members++) {
        size_t at = (size_t)snprintf(many, room, "{");
        for (int i = 0; i < members; i++)
            at += (size_t)snprintf(many + at, room - at, "%s\"%d\":1", i ? "," : "", i);
        at += (size_t)snprintf(many + at, room - at, "}");
        is(parse(many, at), members == JSON_MEMBERS ? KVF_OK : KVF_ERROR_BUNDLE,
           "as many members as allowed, and one more");
    }
    memset(many, '1', 401);
    is(parse(many, 401), KVF_ERROR_BUNDLE, "a number of 401 digits");
    free(many);
    is(parse("tru", 3), KVF_ERROR_BUNDLE, "a bad word at the start");
    contains(error.text, "file.json:1:1: ", "is at line 1, column 1");
    is(parse("{\n  \"a\": tru\n}", 14), KVF_ERROR_BUNDLE, "a bad word");
    contains(error.text, "file.json:2:8: a value is expected", "is found by line and column");
}

/* A host program may have set a locale that writes 0,5. */
static void test_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "da_DK.UTF-8"};
    const char *set = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++)
        set = setlocale(LC_ALL, names[i]);
    if (!set) {
        tap_skip(1, "no locale with a decimal comma");
        return;
    }
    struct arena arena = {0};
    const struct json_value *value = NULL;
    kvf_status status = json_parse(&arena, "x", "-12.5e-1", 8, &value, &error);
    ok(status == KVF_OK && value->real == -1.25, "numbers are read in any locale");
    arena_free(&arena);
    setlocale(LC_ALL, "C");
}

int main(void) {
    tap_plan(17);
    test_cases();
    test_random();
    test_limits();
    test_locale();
    return tap_done();
}
