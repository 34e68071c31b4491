//! The kind that the story brings with it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const GROUP: &str = "rust.example.com";
pub const DEFINITION: &str = "gauges.rust.example.com";

#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "rust.example.com",
    version = "v1",
    kind = "Gauge",
    namespaced,
    status = "GaugeStatus",
    derive = "PartialEq",
    shortname = "ga",
    category = "all",
    doc = "Something that is measured.",
    validation = Rule::new("self.metadata.name.size() <= 20").message("the name is too long"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Unit", type_ = "string", json_path = ".spec.unit"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas", priority = 1),
    selectable = ".spec.unit"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.low <= self.high").message("low is above high").field_path(".low"))]
pub struct GaugeSpec {
    pub low: i32,
    pub high: i32,
    #[serde(default = "unit")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("the unit is for ever"))]
    pub unit: String,
    #[serde(default)]
    #[schemars(range(min = 0, max = 10))]
    pub replicas: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub marks: Vec<Mark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Mark {
    pub name: String,
    pub at: i32,
}

/// Alternatives with contents: what schemars makes of these is a `oneOf`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    Steady { seconds: u32 },
    Once { when: String },
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct GaugeStatus {
    #[serde(default)]
    pub replicas: i32,
    #[serde(default)]
    pub selector: String,
}

fn unit() -> String {
    "kelvin".into()
}
