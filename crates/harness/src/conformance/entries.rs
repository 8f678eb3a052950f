use std::sync::Arc;

use promethean::store::{Put, SaveError};
use promethean_event::{Key, Payload};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::Scene;

checks!(
    entries_are_kept_by_space_and_key,
    versions_rise_and_never_come_back,
    an_expectation_that_does_not_hold_refuses_all,
    a_value_may_look_like_a_tombstone,
    long_keys_do_not_meet,
    of_those_who_race_one_wins,
    bad_names_of_spaces_are_refused,
);

fn put(space: &'static str, key: &str, value: Option<&str>, expect: Option<u64>) -> Check<Put> {
    let value = value.map(Payload::of).transpose()?;
    Ok(Put { space, key: Key::new(key)?, value, expect })
}

async fn list(scene: &Scene, space: &'static str) -> Check<Vec<(String, String, u64)>> {
    let entries = scene.store.entries(space).await?;
    let shown = entries.into_iter().map(|entry| {
        (entry.key.as_str().to_owned(), entry.value.as_str().to_owned(), entry.version)
    });
    Ok(shown.collect())
}

async fn entries_are_kept_by_space_and_key(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    ensure!(list(&scene, "tokens").await?.is_empty(), "an empty space has entries");
    let puts = vec![
        put("tokens", "b", Some("2"), None)?,
        put("tokens", "a", Some("1"), None)?,
        put("schemas", "a", Some("3"), None)?,
    ];
    scene.store.put(puts).await?;
    scene.store.put(Vec::new()).await?;
    let short = |entries: Vec<(String, String, u64)>| -> Vec<(String, String)> {
        entries.into_iter().map(|(key, value, _)| (key, value)).collect()
    };
    let tokens = short(list(&scene, "tokens").await?);
    let expected = [("a", "\"1\""), ("b", "\"2\"")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    ensure_same!(tokens, expected, "the entries of a space, by key");
    ensure_same!(list(&scene, "schemas").await?.len(), 1, "the entries of another space");
    scene.store.put(vec![put("tokens", "a", None, None)?]).await?;
    scene.store.put(vec![put("tokens", "a", None, None)?]).await?;
    ensure_same!(list(&scene, "tokens").await?.len(), 1, "what is left after a removal");
    Ok(())
}

async fn versions_rise_and_never_come_back(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mut last = 0;
    for round in 0..5 {
        let value = round.to_string();
        scene.store.put(vec![put("tokens", "a", Some(&value), Some(0))?]).await?;
        for _ in 0..3 {
            let version = list(&scene, "tokens").await?.first().map_or(0, |entry| entry.2);
            ensure!(version > last, "version {version} after {last}");
            last = version;
            scene.store.put(vec![put("tokens", "a", Some(&value), Some(version))?]).await?;
        }
        scene.store.put(vec![put("tokens", "a", None, None)?]).await?;
    }
    Ok(())
}

async fn an_expectation_that_does_not_hold_refuses_all(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.store.put(vec![put("tokens", "a", Some("1"), Some(0))?]).await?;
    let before = list(&scene, "tokens").await?;
    let version = before.first().map_or(0, |entry| entry.2);
    for expected in [0, version + 1] {
        let puts = vec![
            put("tokens", "b", Some("2"), None)?,
            put("tokens", "a", Some("3"), Some(expected))?,
        ];
        let result = scene.store.put(puts).await;
        let Err(SaveError::Changed { key, version: told }) = result else {
            return Err(format!("an expectation that does not hold: {result:?}").into());
        };
        ensure_same!((key.as_str(), told), ("a", version), "what the error tells");
    }
    let result = scene.store.put(vec![put("tokens", "nobody", None, Some(7))?]).await;
    ensure!(
        matches!(result, Err(SaveError::Changed { version: 0, .. })),
        "an entry that never was: {result:?}"
    );
    ensure_same!(list(&scene, "tokens").await?, before, "entries after refused puts");
    Ok(())
}

async fn a_value_may_look_like_a_tombstone(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for (key, value) in [("a", "null"), ("b", r#"{"_deleted":true}"#)] {
        let value = Some(Payload::parse(value.as_bytes().to_vec())?);
        let put = Put { space: "tokens", key: Key::new(key)?, value, expect: Some(0) };
        scene.store.put(vec![put]).await?;
    }
    let values: Vec<_> = list(&scene, "tokens").await?.into_iter().map(|e| e.1).collect();
    ensure_same!(values, ["null", r#"{"_deleted":true}"#], "values that look like tombstones");
    Ok(())
}

async fn long_keys_do_not_meet(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let keys = [format!("{}a", "%".repeat(1023)), format!("{}b", "%".repeat(1023))];
    for key in &keys {
        scene.store.put(vec![put("tokens", key, Some(key), Some(0))?]).await?;
    }
    let found: Vec<_> = list(&scene, "tokens").await?.into_iter().map(|e| e.0).collect();
    ensure_same!(found, keys, "the keys");
    Ok(())
}

async fn of_those_who_race_one_wins(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for round in 0..20_u64 {
        let version = list(&scene, "leases").await?.first().map_or(0, |entry| entry.2);
        let mut racers = Vec::new();
        for racer in 0..8 {
            let store = Arc::clone(&scene.store);
            let name = format!("racer {racer}");
            let put = put("leases", "lane", Some(&name), Some(version))?;
            racers.push(tokio::spawn(async move { (name, store.put(vec![put]).await) }));
        }
        let mut winners = Vec::new();
        for racer in racers {
            match racer.await? {
                (name, Ok(())) => winners.push(name),
                (_, Err(SaveError::Changed { .. })) => {}
                (_, Err(other)) => return Err(other.into()),
            }
        }
        ensure_same!(winners.len(), 1, "winners of round {round}: {winners:?}");
        let held = list(&scene, "leases").await?.first().map(|entry| entry.1.clone());
        ensure_same!(held, winners.first().map(|name| format!("{name:?}")), "who holds it");
    }
    Ok(())
}

async fn bad_names_of_spaces_are_refused(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for space in ["", "a.b", "A", "$x"] {
        let result = scene.store.put(vec![put(space, "a", Some("1"), None)?]).await;
        ensure!(matches!(result, Err(SaveError::BadSpace(_))), "space {space:?}: {result:?}");
    }
    Ok(())
}
