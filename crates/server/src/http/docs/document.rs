//! What the page needs of an OpenAPI document, in the order it is written in.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize as DeriveDeserialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

#[derive(DeriveDeserialize)]
pub(super) struct Document {
    pub(super) info: Info,
    pub(super) tags: Vec<Tag>,
    pub(super) paths: InOrder<Path>,
    pub(super) components: Components,
}

#[derive(DeriveDeserialize)]
pub(super) struct Info {
    pub(super) title: String,
    pub(super) version: String,
    pub(super) summary: String,
    pub(super) description: String,
}

#[derive(DeriveDeserialize)]
pub(super) struct Tag {
    pub(super) name: String,
    pub(super) description: String,
}

#[derive(DeriveDeserialize)]
pub(super) struct Path {
    #[serde(default)]
    pub(super) parameters: Vec<OrReference<Parameter>>,
    get: Option<Operation>,
    post: Option<Operation>,
    put: Option<Operation>,
}

#[derive(DeriveDeserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    pub(super) operation_id: String,
    pub(super) tags: Vec<String>,
    pub(super) summary: String,
    pub(super) description: String,
    #[serde(default)]
    pub(super) parameters: Vec<OrReference<Parameter>>,
    pub(super) request_body: Option<RequestBody>,
    pub(super) responses: InOrder<OrReference<Answer>>,
    #[serde(default, rename = "x-codeSamples")]
    pub(super) samples: Vec<Sample>,
}

#[derive(DeriveDeserialize)]
pub(super) struct Parameter {
    pub(super) name: String,
    #[serde(rename = "in")]
    pub(super) place: String,
    #[serde(default)]
    pub(super) required: bool,
    pub(super) description: String,
    pub(super) schema: Schema,
}

#[derive(DeriveDeserialize)]
pub(super) struct RequestBody {
    pub(super) content: InOrder<Media>,
}

#[derive(DeriveDeserialize)]
pub(super) struct Answer {
    pub(super) description: String,
    #[serde(default)]
    pub(super) headers: InOrder<Value>,
    #[serde(default)]
    pub(super) content: InOrder<Media>,
}

#[derive(DeriveDeserialize)]
pub(super) struct Media {
    pub(super) schema: Schema,
}

#[derive(DeriveDeserialize)]
pub(super) struct Sample {
    pub(super) label: String,
    pub(super) source: String,
}

#[derive(Default, DeriveDeserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Schema {
    #[serde(rename = "$ref")]
    pub(super) reference: Option<String>,
    #[serde(rename = "type")]
    pub(super) types: Option<Value>,
    pub(super) description: String,
    pub(super) required: Vec<String>,
    pub(super) properties: InOrder<Schema>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) one_of: Vec<Schema>,
    pub(super) all_of: Vec<Schema>,
    #[serde(rename = "enum")]
    pub(super) words: Vec<Value>,
    #[serde(rename = "const")]
    pub(super) only: Option<Value>,
    #[serde(rename = "default")]
    pub(super) usual: Option<Value>,
    pub(super) minimum: Option<u64>,
    pub(super) maximum: Option<u64>,
    pub(super) examples: Vec<Value>,
}

#[derive(DeriveDeserialize)]
pub(super) struct Components {
    parameters: InOrder<Parameter>,
    responses: InOrder<Answer>,
    pub(super) schemas: InOrder<Schema>,
}

/// Something, or where it is.
#[derive(DeriveDeserialize)]
#[serde(untagged)]
pub(super) enum OrReference<T> {
    Reference {
        #[serde(rename = "$ref")]
        place: String,
    },
    Here(T),
}

/// The members of an object, in the order they are written in.
pub(super) struct InOrder<T>(pub(super) Vec<(String, T)>);

impl Document {
    /// The operations under a tag, each with its method, its path and what else stands there.
    pub(super) fn operations<'a>(
        &'a self,
        tag: &'a str,
    ) -> impl Iterator<Item = (&'static str, &'a str, &'a Path, &'a Operation)> {
        let operations = self.paths.0.iter().flat_map(|(name, path)| {
            let methods = [("GET", &path.get), ("POST", &path.post), ("PUT", &path.put)];
            let taken =
                methods.into_iter().filter_map(|(method, taken)| Some((method, taken.as_ref()?)));
            taken.map(move |(method, operation)| (method, name.as_str(), path, operation))
        });
        operations.filter(move |(.., operation)| operation.tags.iter().any(|name| name == tag))
    }

    pub(super) fn parameter<'a>(
        &'a self,
        given: &'a OrReference<Parameter>,
    ) -> Option<&'a Parameter> {
        given.resolved(&self.components.parameters)
    }

    pub(super) fn answer<'a>(&'a self, given: &'a OrReference<Answer>) -> Option<&'a Answer> {
        given.resolved(&self.components.responses)
    }
}

impl<T> OrReference<T> {
    fn resolved<'a>(&'a self, components: &'a InOrder<T>) -> Option<&'a T> {
        match self {
            Self::Here(value) => Some(value),
            Self::Reference { place } => components.get(last_segment(place)),
        }
    }
}

/// The name that a reference ends with.
pub(super) fn last_segment(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

impl<T> InOrder<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InOrder<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = InOrder<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InOrder<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(InOrder(members))
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}
