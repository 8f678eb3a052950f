use std::sync::Arc;

use super::*;

/// Another case of `k`.
const KELVIN: &str = "\u{212A}";

fn finds(pattern: &str, text: &str) -> bool {
    compile(pattern).unwrap().contains(text)
}

fn inside(left: &str, right: &str) -> bool {
    let left = Arc::new(compile(left).unwrap());
    let right = Arc::new(compile(right).unwrap());
    let product = product::product(&[(left, true), (right, false)]).unwrap();
    let words = words::words(&product, 0, None, 1).unwrap();
    words.found.is_empty() && words.complete
}

fn same(left: &str, right: &str) -> bool {
    inside(left, right) && inside(right, left)
}

#[test]
fn a_pattern_is_searched_for_anywhere_unless_anchored() {
    assert!(finds("b", "abc"));
    assert!(!finds("^b", "abc"));
    assert!(finds("^a.*c$", "abc"));
    assert!(!finds("^a$", "a\n"), "the end is the end, not a line's");
    assert!(finds("(^a|b$)", "xb"));
    assert!(!finds("(^a|b$)", "xa"));
    assert!(finds("a{2,3}", "caab"));
    assert!(!finds("^a{2,3}$", "aaaa"));
    assert!(finds("^(?:ab)+$", "abab"));
    assert!(finds("", ""));
    assert!(finds("^$", ""));
    assert!(!finds("[]", "x"));
    assert!(finds("^[^]$", "\n"));
}

#[test]
fn classes_are_those_of_ecma_262() {
    assert!(finds(r"^\d+$", "09"));
    assert!(!finds(r"^\d$", "\u{0661}"));
    assert!(finds(r"^\s$", "\u{feff}"));
    assert!(finds(r"^\cC$", "\u{3}"));
    assert!(!finds("^.$", "\r"));
    assert!(finds(r"^[\w-]+$", "a-b"));
    assert!(finds(r"^\p{Lu}$", "É"));
    assert!(finds(r"^\u{1F600}$", "😀"));
    assert!(finds(r"^\ud83d\ude00$", "😀"));
    assert!(finds(r"^[\d\-x]$", "-"));
}

#[test]
fn lookaheads_intersect_what_follows() {
    assert!(finds("^(?=x$)x$", "x"));
    assert!(finds(r"^(?=.*\d)(?=.*[a-z]).{4,}$", "abc1"));
    assert!(!finds(r"^(?=.*\d)(?=.*[a-z]).{4,}$", "abcd"));
    assert!(finds("^(?!foo).*$", "bar"));
    assert!(!finds("^(?!foo).*$", "food"));
    assert!(finds("a(?!b)", "abac"));
    assert!(!finds("a(?!b)", "abab"));
    assert!(inside("^(?=x$)x$", "^x$") && inside("^x$", "^(?=x$)x$"));
    assert!(same("^(?:(?!ab)[a-z])*$", "^(?!.*ab)[a-z]*$"), "one at every step");
    assert!(same("^(?:(?=a.)[ab])*$", "^$"), "each asks for another");
    assert!(same("(?=^a)", "^a") && same("x(?=$|y)", "x$|xy"));
    assert!(same(
        "^(?=a(?!b))a.*$",
        "^a([^b].*)?$".replace("[^b]", "[^b\\n\\r\\u2028\\u2029]").as_str()
    ));
}

#[test]
fn lookbehinds_know_what_came_before() {
    assert!(same("(?<=a)b", "ab"));
    assert!(same("^(?<!a)b", "^b"));
    assert!(same("(?<!a)b", "^b|[^a]b"));
    assert!(same("(?<=^a|cc)b", "^ab|ccb"));
    assert!(same("(?<=(?<!x)a)b", "(^|[^x])ab"));
    assert!(same("(?=a(?<=xa))a", "xa"), "before a lookahead, too");
    assert!(finds("^a(?:b(?<=ab))*$", "ab") && !finds("^a(?:b(?<=ab))*$", "abb"));
}

#[test]
fn words_end_where_word_characters_do() {
    assert!(same(r"\bfoo\b", r"(^|\W)foo(\W|$)"));
    assert!(same(r"^\bfoo\b$", "^foo$"));
    assert!(same(r"^a\Bb$", "^ab$") && same(r"^a\bb$", "[]"));
    assert!(same(r"^\B", r"^(\W|$)"));
}

#[test]
fn letters_match_either_case_where_that_is_asked() {
    assert!(same("^(?i)ab$", "^[aA][bB]$") && same("^(?i:a)b$", "^[aA]b$"));
    assert!(same("^((?i)a)b$", "^[aA]b$"), "to the end of the group");
    assert!(same("^(?i)[^a]$", "^[^aA]$") && same("(?P<n>a)", "a"));
    assert!(finds("^(?s:.)$", "\n"));
    assert!(finds(r"^(?i)\p{Lu}$", "a") && !finds(r"^(?i)\P{Lu}$", "a"), "classes, too");
    assert!(finds(r"^(?i)[\w]$", KELVIN) && finds(r"^(?i)\w$", KELVIN) && !finds(r"^\w$", KELVIN));
    assert!(!finds(r"^(?i)\W$", KELVIN) && !finds(r"^(?i)[\W]$", KELVIN));
}

#[test]
fn a_brace_that_is_no_quantifier_is_a_brace() {
    assert!(same("^{a}$", r"^\{a\}$") && same("^a{,3}$", r"^a\{,3\}$") && same("a{2", r"a\{2"));
    assert!(same(r"^[\w-.]$", r"^[\w\-.]$") && finds(r"[^\0]", "a"));
    assert_eq!(compile("{2}").unwrap_err(), PatternProblem::Syntax);
}

/// What the engine is given means the same, to us and to it.
#[test]
fn a_respelt_pattern_means_the_same() {
    let patterns = [
        "^.$",
        "a.c",
        "^{x}$",
        r"^(?=.*\d)\w+$",
        r"\bfoo\b",
        "^(?:(?!ab).)*$",
        r"^\ud83d\ude00$",
        "a{,3}",
        r"^[\w-.]+$",
        "[]",
        "[^]",
        "(a|b.)*c",
        "(?<!a)b",
        r"^[^\0]$",
        "(?i)a.",
        "^(?:a|b.)?$",
        "x(?:|.)y",
        r"^\[.\]\^\-$",
        "^(?:.{2,3}){2}$",
        "^<.+>$",
        r#"^(\.[^\\?%*:|"<>\n]+|\${{.*}})$"#,
        "^[!-/:-@[-`{-~].$",
        r"(?i)^\w$",
        r"(?i)^[^\W]$",
        r"(?i)^\P{Lu}$",
    ];
    let texts = [
        "", "a", "b", "ab", "abc", "foo", "a foo.", "\n", "\r", "é", "{x}", "a1", "a٣", "😀",
        "a{,3}", "xy", "x.y", "[.]^-", "A\r", "abcd", "0", KELVIN, "\u{17F}", "<a>", "${{x}}",
        ".a", "&&", "~~", "--", "a-",
    ];
    for pattern in patterns {
        let respelt = spell::for_engine(pattern);
        assert!(same(pattern, &respelt), "{pattern} became {respelt}");
        let schema = serde_json::json!({"pattern": pattern});
        let document = crate::Document::from_value(&schema, None).unwrap();
        for text in texts {
            let said = document.validator().is_valid(&serde_json::json!(text));
            assert_eq!(said, finds(pattern, text), "{pattern} as {respelt} on {text:?}");
        }
    }
    assert_eq!(spell::for_engine(r"^[a-z]+\d{2}$"), r"^[a-z]+\d{2}$");
}

#[test]
fn inclusion_is_of_languages_not_of_texts() {
    assert!(inside("^[a-c]+$", "^[a-z]*$"));
    assert!(!inside("^[a-z]*$", "^[a-c]+$"));
    assert!(inside("^(ab)*$", "^(abab|ab|)*$"));
    assert!(inside("^x", "x"));
    assert!(!inside("x", "^x"));
}

#[test]
fn what_is_not_regular_is_said() {
    let problem = |pattern| compile(pattern).unwrap_err();
    assert_eq!(problem(r"(a)\1"), PatternProblem::Backreference);
    assert_eq!(problem("(?<=a(?=b))b"), PatternProblem::Lookbehind);
    assert_eq!(problem("(((a{100}){100}){100})"), PatternProblem::TooLarge);
    assert_eq!(problem("("), PatternProblem::Syntax);
}

#[test]
fn words_respect_lengths_and_say_when_there_are_no_more() {
    let ab = Arc::new(compile("^[ab]*$").unwrap());
    let product = product::product(&[(ab, true)]).unwrap();
    let two = words::words(&product, 2, Some(2), 9).unwrap();
    assert_eq!((two.found.len(), two.complete), (4, true));
    let long = words::words(&product, 5000, None, 1).unwrap();
    assert_eq!(long.found.first().map(String::len), Some(5000));
    let single = Arc::new(compile("^abc$").unwrap());
    let product = product::product(&[(single, true)]).unwrap();
    let words = words::words(&product, 0, None, 5).unwrap();
    assert_eq!((words.found, words.complete), (vec!["abc".to_owned()], true));
}

#[test]
fn long_words_are_counted_not_spelt() {
    let product = |pattern: &str| product::product(&[(Arc::new(compile(pattern).unwrap()), true)]);
    assert_eq!(product("^[a-z]{2,10000}$").unwrap().lengths(), (Some(2), Some(10_000)));
    assert_eq!(product("^(ab)*c$").unwrap().lengths(), (Some(1), None));
    assert_eq!(product("[]").unwrap().lengths().0, None);
    let any = product::product(&[]).unwrap();
    let long = words::words(&any, 1_000_000, None, 1).unwrap();
    assert_eq!(long.found.first().map(String::len), Some(1_000_000));
}
