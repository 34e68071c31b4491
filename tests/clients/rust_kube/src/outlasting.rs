//! A cache that says what it sees, whatever the server does meanwhile.

use anyhow::Result;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};

pub async fn outlast(client: &Client) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("stable.example.com", "v1", "CronTab"));
    let crontabs: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let mut events = watch(crontabs, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(it) | Event::InitApply(it)) => println!("+{}", it.name_any()),
            Ok(Event::Delete(it)) => println!("-{}", it.name_any()),
            Ok(Event::InitDone) => println!("synced"),
            Ok(Event::Init) => (),
            Err(error) => println!("# {error}"),
        }
    }
    Ok(())
}
