//! Schemas from types of the program.

use promethean_event::{Topic, TypedTopic};
use schemars::{JsonSchema, SchemaGenerator};

use super::registration::{RegisterError, Registered, Registration};
use super::schemas::Schemas;

impl Registration {
    /// The schema of a type: what its `Deserialize` takes. It must become the version that the type
    /// says, or be it already.
    pub fn of_type<T: TypedTopic + JsonSchema>() -> Self {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        let text = format!("{:#}", schema.to_value());
        Self::new(text).version(T::VERSION)
    }
}

impl Schemas {
    /// Registers the schema of a type for the topic of the type. Doing it again changes nothing.
    pub async fn register_type<T: TypedTopic + JsonSchema>(
        &self,
    ) -> Result<Registered, RegisterError> {
        self.register(&Topic::new(T::TOPIC)?, Registration::of_type::<T>()).await
    }
}
