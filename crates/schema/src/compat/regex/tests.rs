use std::sync::Arc;

use super::*;

fn finds(pattern: &str, text: &str) -> bool {
    compile(pattern, Flavor::Ecma).unwrap().contains(text)
}

fn inside(left: &str, right: &str) -> bool {
    let left = Arc::new(compile(left, Flavor::Ecma).unwrap());
    let right = Arc::new(compile(right, Flavor::Ecma).unwrap());
    let product = product::product(&[(left, true), (right, false)]).unwrap();
    let words = words::words(&product, 0, None, 1).unwrap();
    words.found.is_empty() && words.complete
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
    assert!(compile("^.$", Flavor::Engine).unwrap().contains("\r"));
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
    let problem = |pattern| compile(pattern, Flavor::Ecma).unwrap_err();
    assert_eq!(problem(r"(a)\1"), PatternProblem::Backreference);
    assert_eq!(problem("(?<=a)b"), PatternProblem::Lookbehind);
    assert_eq!(problem("(?:(?=a).)*"), PatternProblem::Lookahead);
    assert_eq!(problem(r"\bfoo\b"), PatternProblem::WordBoundary);
    assert_eq!(problem("(((a{100}){100}){100})"), PatternProblem::TooLarge);
    assert_eq!(problem("("), PatternProblem::Syntax);
}

#[test]
fn words_respect_lengths_and_say_when_there_are_no_more() {
    let ab = Arc::new(compile("^[ab]*$", Flavor::Ecma).unwrap());
    let product = product::product(&[(ab, true)]).unwrap();
    let two = words::words(&product, 2, Some(2), 9).unwrap();
    assert_eq!((two.found.len(), two.complete), (4, true));
    let long = words::words(&product, 5000, None, 1).unwrap();
    assert_eq!(long.found.first().map(String::len), Some(5000));
    let single = Arc::new(compile("^abc$", Flavor::Ecma).unwrap());
    let product = product::product(&[(single, true)]).unwrap();
    let words = words::words(&product, 0, None, 5).unwrap();
    assert_eq!((words.found, words.complete), (vec!["abc".to_owned()], true));
}
