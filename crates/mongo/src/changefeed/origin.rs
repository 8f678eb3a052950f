//! What a MongoDB tells of itself.

use mongodb::bson::doc;
use promethean::changefeed::{Definition, Origin};

use crate::cluster::Cluster;
use crate::fault::{Fault, code_of, too_late};

/// Which collection of which MongoDB this is. `id` is the collection's.
pub(super) async fn origin(
    cluster: &Cluster,
    definition: &Definition,
    id: Option<String>,
) -> Result<Origin, Fault> {
    let hello = cluster.ask(cluster.database.run_command(doc! { "hello": 1 })).await?;
    let list = |name| hello.get_array(name).into_iter().flatten();
    let members = ["hosts", "passives", "arbiters"].into_iter().flat_map(list);
    let declared = Origin::declared(definition);
    Ok(Origin {
        collection_id: id,
        set_id: set_id(cluster).await?,
        set: hello.get_str("setName").ok().map(str::to_owned).or(declared.set),
        members: members.filter_map(|host| host.as_str().map(str::to_lowercase)).collect(),
        ..declared
    })
}

/// The number of the replica set; nothing if this user is not told.
async fn set_id(cluster: &Cluster) -> Result<Option<String>, Fault> {
    let admin = cluster.client.database("admin");
    let asked = cluster.deadline().hold(admin.run_command(doc! { "replSetGetConfig": 1 })).await;
    match asked.ok_or_else(too_late)? {
        Ok(answer) => {
            let config = answer.get_document("config");
            let settings = config.and_then(|config| config.get_document("settings"));
            let id = settings.and_then(|settings| settings.get_object_id("replicaSetId"));
            Ok(id.ok().map(|id| id.to_hex()))
        }
        Err(error) => {
            let is_answer = code_of(&error).is_some();
            match Fault::from(error) {
                // It may not, or it is no set.
                Fault::Refused(_) if is_answer => Ok(None),
                fault => Err(fault),
            }
        }
    }
}
