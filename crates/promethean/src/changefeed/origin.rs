use serde::{Deserialize, Serialize};

use super::definition::Definition;

/// The collection that a feed's place is one in, and what its MongoDB told of itself: a place in one is
/// none in another. Default: nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// As `database.collection`.
    pub collection: String,
    /// What no other collection has, not even the next one of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection_id: Option<String>,
    /// What no other replica set has. It is told to those only who may read how the set is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_id: Option<String>,
    /// The name of the replica set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The members that the connection string names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// All members, as the set names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

impl Origin {
    /// As far as a declaration tells.
    pub fn declared(definition: &Definition) -> Self {
        let url = &definition.url;
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold anything: what is behind the last of these is no part of it.
        let hosts = before.rsplit_once('@').map_or(before, |(_, hosts)| hosts);
        let hosts = hosts.split_once('/').map_or(hosts, |(hosts, _)| hosts);
        let has_ports = scheme == "mongodb";
        let member = |host: &str| {
            let host = host.to_lowercase();
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            if has_ports && !has_port { format!("{host}:27017") } else { host }
        };
        let set = options.split('&').find_map(|option| {
            let (name, value) = option.split_once('=')?;
            name.eq_ignore_ascii_case("replicaSet").then(|| value.to_owned())
        });
        Self {
            collection: definition.collection.clone(),
            set,
            named: hosts.split(',').map(member).collect(),
            ..Self::default()
        }
    }

    /// Whether a place in one is a place in the other: the same collection of the same MongoDB.
    pub fn is_same(&self, other: &Self) -> bool {
        self.collection == other.collection && self.is_same_mongodb(other)
    }

    /// By what is surest of all that both tell. A new password, or another member, makes no other
    /// MongoDB; nor does another name of the same one.
    pub fn is_same_mongodb(&self, other: &Self) -> bool {
        let are_same = |ours: &Option<String>, theirs: &Option<String>| {
            ours.as_ref().zip(theirs.as_ref()).map(|(ours, theirs)| ours == theirs)
        };
        if let Some(is_same) = are_same(&self.set_id, &other.set_id) {
            return is_same;
        }
        if are_same(&self.set, &other.set) == Some(false) {
            return false;
        }
        let is_same_collection = are_same(&self.collection_id, &other.collection_id);
        // Inside of two networks different machines may have the same names. So they count only where
        // nothing is against it.
        is_same_collection == Some(true)
            || self.named.iter().any(|member| other.named.contains(member))
            || is_same_collection.is_none() && self.all().any(|one| other.all().any(|it| it == one))
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.named.iter().chain(&self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(url: &str, collection: &str) -> Origin {
        let definition = serde_json::json!({ "url": url, "collection": collection, "topic": "t" });
        Origin::declared(&serde_json::from_value(definition).unwrap())
    }

    /// It went on in another MongoDB, or another collection, from a place in the first one.
    #[test]
    fn another_mongodb_or_collection_is_another_origin() {
        let same = |one: &str, other: &str| declared(one, "d.e").is_same(&declared(other, "d.e"));
        assert!(same("mongodb://a:b@c/", "mongodb://a:n/e@w@C:27017/?replicaSet=p"));
        assert!(same(
            "mongodb://c:1,d:1/?replicaSet=p",
            "mongodb://d:1,e:1/?replicaset=p&tls=true"
        ));
        assert!(same(
            "mongodb+srv://a@set.example.com/",
            "mongodb+srv://set.example.com/?tls=true"
        ));
        assert!(same("mongodb://[::1]/", "mongodb://[::1]:27017/x"));
        assert!(!same("mongodb://c/", "mongodb://d/"));
        assert!(!same("mongodb://c:1/", "mongodb://c:2/"));
        assert!(!same("mongodb://c/?replicaSet=p", "mongodb://c/?replicaSet=q"));
        assert!(!declared("mongodb://c/", "d.e").is_same(&declared("mongodb://c/", "d.f")));
    }

    /// Another spelling of the same MongoDB was taken for another one.
    #[test]
    fn what_a_mongodb_tells_of_itself_counts_for_more_than_how_it_is_called() {
        let told = |url: &str, change: fn(&mut Origin)| {
            let mut origin = declared(url, "d.e");
            change(&mut origin);
            origin
        };
        let a = told("mongodb+srv://set.example.com/", |origin| {
            origin.members = vec!["a:1".into(), "b:1".into()];
        });
        assert!(a.is_same(&declared("mongodb://b:1/", "d.e")));
        assert!(!a.is_same(&declared("mongodb://c:1/", "d.e")));
        let with_id = |id: fn(&mut Origin)| told("mongodb://a:1/", id);
        let (one, other): (Origin, Origin) = (
            with_id(|origin| origin.set_id = Some("1".into())),
            with_id(|origin| origin.set_id = Some("2".into())),
        );
        assert!(!one.is_same(&other), "machines of two networks");
        let renamed = told("mongodb://x:1/", |origin| origin.set_id = Some("1".into()));
        assert!(one.is_same(&renamed));
        // Who may not see the set's number sees the collection's.
        let seen = |url: &str| told(url, |origin| origin.collection_id = Some("u".into()));
        assert!(seen("mongodb://a:1/").is_same(&seen("mongodb://x:1/")));
        let inside = |url: &str, id: &str| Origin {
            collection_id: Some(id.into()),
            members: vec!["mongo-0:27017".into()],
            ..declared(url, "d.e")
        };
        assert!(!inside("mongodb://a:1/", "u").is_same(&inside("mongodb://x:1/", "v")));
        assert!(inside("mongodb://a:1/", "u").is_same(&inside("mongodb://a:1/", "v")));
    }
}
