//! The bus as its users see it: every case runs for every kind of bus, through a [`BusFactory`].
//!
//! [`bus_cases!`](crate::bus_cases) names them all, so that each is a test of its own wherever
//! they are run.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a suite of tests: what does not hold ends the test with its reason"
)]

mod factory;

mod fragile;

mod memory;

mod embedded;

mod scene;

pub mod publish;

pub mod starts;

pub mod reading_scope;

pub mod sharing;

pub mod acks;

pub mod batches;

pub mod leases;

pub mod retries;

pub mod dead_letters;

pub mod letter_replay;

pub mod parked_keys;

pub mod partitioned;

pub mod seeks;

pub mod lag;

pub mod looking_back;

pub mod cleaning;

pub mod settings;

pub mod restarts;

pub mod faults;

pub mod closing;

mod random;

pub use embedded::EmbeddedBuses;
pub use factory::{BusFactory, Pace};
pub use fragile::FragileStore;
pub use memory::MemoryBuses;
pub use random::{RandomReport, run_random};

/// Hands the names of all cases to a macro: `area { case, … }`, one after the other.
#[macro_export]
macro_rules! bus_cases {
    ($run:ident) => {
        $run! {
            publish {
                one_call_is_atomic_over_topics,
                a_run_is_in_order_and_each_is_answered_for_itself,
                the_same_id_again_adds_nothing,
                the_same_id_with_other_content_is_refused,
                the_same_id_at_the_same_time_is_stored_once,
                the_same_id_twice_in_a_batch_is_stored_once,
                expectations_hold_or_nothing_is_stored,
                a_publishers_events_are_in_its_order,
                partitions_follow_the_published_hash,
                what_is_not_allowed_is_refused,
                marks_of_the_system_are_its_own,
                an_oversized_batch_is_refused_whole,
                unknown_topics_can_be_refused,
                times_and_ids_order_nothing,
                events_come_out_as_they_went_in,
                refused_events_are_never_seen,
            }
            starts {
                latest_begins_when_subscribe_returns,
                a_group_that_begins_under_load_gets_a_whole_suffix,
                earliest_begins_with_the_oldest,
                a_time_begins_with_what_was_taken_then,
                after_an_event_begins_behind_it,
                after_an_event_loses_nothing_elsewhere,
                a_group_that_was_here_goes_on,
                topics_that_appear_later_are_read_whole,
                a_wide_topic_that_appears_later_is_read_whole,
            }
            reading_scope {
                a_filter_passes_over_and_the_cursor_follows,
                a_filter_and_acks_get_along,
                members_agree_on_the_filter,
                patterns_match_users_topics_once,
                dead_letters_can_be_read_by_name,
                bad_names_and_patterns_are_refused,
                a_removed_topic_goes_without_trouble,
            }
            sharing {
                two_members_share_and_do_not_both_get,
                groups_do_not_share,
                what_is_out_does_not_come_again,
                without_order_a_key_is_out_many_times,
                with_order_a_key_is_out_once,
                keys_stay_in_order_through_failures,
                a_failing_event_holds_up_its_key_only,
                a_slow_group_stops_nobody,
            }
            acks {
                the_cursor_waits_for_the_first,
                what_was_not_acked_comes_again,
                a_second_ack_says_so,
                a_late_ack_is_refused,
                a_foreign_member_cannot_ack,
                an_ack_from_before_a_seek_is_void,
                a_batch_of_acks_is_judged_one_by_one,
                a_range_acks_what_the_member_holds,
                an_ack_after_leaving_is_void,
                a_dropped_delivery_is_not_acked,
                skipped_is_done,
            }
            batches {
                a_batch_is_acked_as_one,
                batches_go_on_where_single_ones_ended,
                small_batches_are_gathered,
                a_batch_can_be_taken_apart,
                a_batch_that_failed_comes_again,
                a_late_batch_is_refused,
            }
            leases {
                an_expired_lease_goes_to_another,
                an_extended_lease_holds,
                extensions_are_bounded,
                leaving_gives_back_at_once,
                a_paused_member_gets_nothing_new,
                a_paused_group_rests,
                credits_are_not_exceeded,
                in_flight_limits_hold,
                bytes_in_flight_are_bounded,
                waiting_for_a_handler_costs_no_lease,
                concurrency_is_kept,
            }
            retries {
                attempts_are_exact,
                delays_grow,
                a_delay_of_the_consumers_counts,
                permanent_errors_are_not_retried,
                a_panic_is_a_failure,
                a_handler_that_hangs_is_given_up,
                expired_leases_count_as_attempts,
                lost_members_count_as_attempts,
                errors_tell_their_causes,
                a_stale_nack_is_refused,
            }
            dead_letters {
                a_letter_tells_the_whole_story,
                errors_are_bounded_and_redacted,
                letters_can_be_listed,
                other_groups_do_not_notice,
                no_letter_of_a_letter,
                the_largest_event_can_die,
                the_longest_topic_loses_nothing,
                strangers_among_the_letters_do_no_harm,
                every_death_has_its_letter,
            }
            letter_replay {
                a_replay_goes_to_the_failing_group_only,
                a_replayed_event_is_unfinished_business,
                a_replay_can_go_to_all,
                a_replay_can_change_the_event,
                a_dry_run_changes_nothing,
                rounds_are_bounded,
                rounds_of_published_replays_are_bounded,
                a_replay_without_room_for_its_mark_is_left,
                a_letter_that_is_given_back_already_stops_nobody,
                letters_can_be_discarded,
                many_letters_are_all_replayed,
                a_replay_keeps_its_rate,
                a_letter_without_its_group_is_left,
                a_replay_of_nothing_is_nothing,
            }
            parked_keys {
                a_key_waits_and_goes_on_after_the_replay,
                a_key_waits_again,
                a_key_goes_on_after_the_discard,
                a_key_goes_on_after_a_replacement,
                later_events_wait_too,
                a_seek_frees_the_key,
                parking_keys_needs_their_order,
                events_without_a_key_hold_up_nobody,
            }
            partitioned {
                partitions_have_one_owner_each,
                members_without_a_partition_wait,
                a_revoked_partition_is_drained_first,
                a_late_owner_is_fenced,
                partitions_have_their_own_cursors,
                keys_stay_in_order_across_rebalances,
                many_partitions_at_once_expel_nobody,
            }
            seeks {
                a_rewind_brings_everything_again,
                a_move_forward_passes_over,
                beyond_the_end_is_refused,
                unknown_groups_and_topics_are_named,
                a_plan_moves_nothing,
                seeks_take_all_kinds_of_places,
                seeks_under_load_lose_nothing,
            }
            lag {
                lag_counts_what_is_not_finished,
                caught_up_waits_for_the_last_ack,
                caught_up_counts_the_dead_as_finished,
                every_partition_is_told,
            }
            looking_back {
                a_replay_keeps_the_order_of_the_store,
                a_long_replay_leaves_nothing_out,
                a_replay_has_bounds,
                pages_go_both_ways,
                the_latest_of_a_key_is_the_last,
                tombstones_hide_their_key,
                all_keys_can_be_listed,
                events_are_found_by_id,
            }
            cleaning {
                held_events_are_kept,
                an_expired_backlog_is_passed_over,
                a_seek_into_the_past_says_where_it_went,
                gaps_are_announced,
                compaction_keeps_the_newest,
                held_events_are_not_compacted,
            }
            settings {
                members_agree_on_their_group,
                a_change_of_settings_keeps_the_cursor,
                nonsense_is_refused,
                a_member_without_room_is_refused,
                a_group_can_be_removed,
                a_group_is_made_once,
            }
            restarts {
                acks_survive,
                attempts_survive,
                failures_survive,
                dead_letters_survive,
                parked_keys_survive,
                moves_survive,
                groups_and_settings_survive,
                topics_that_appear_meanwhile_are_read_whole,
                ids_survive,
                keys_stay_in_order_across_crashes,
                a_closed_bus_opens_again,
            }
            faults {
                acks_are_answered_when_durable,
                failed_saves_are_made_again,
                failed_reads_are_made_again,
                a_lost_answer_is_told,
                a_death_is_one_save,
                a_crash_leaves_an_event_in_one_place,
                a_hanging_save_stops_one_group_only,
                a_topic_that_appears_in_between_is_read,
            }
            closing {
                a_closed_bus_says_so,
                close_waits_for_what_was_decided,
                a_stopped_consumer_finishes_its_event,
                a_dropped_consumer_gives_back,
                a_hung_handler_keeps_nobody,
                the_last_handle_closes,
            }
        }
    };
}
