//! Watches that start in each way, and a cache that they fill.

use std::collections::BTreeSet;
use std::fmt::Debug;

use anyhow::{Context, Result, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, predicates, watcher as watch};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::calls::gauge;
use crate::kinds::Gauge;

pub async fn raw(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let made = gauges.create(&PostParams::default(), &gauge("raw")).await?;
    let from = made.resource_version().context("a revision")?;
    gauges.delete("raw", &DeleteParams::default()).await?;
    let mut events = gauges
        .watch(&WatchParams::default().fields("metadata.name=raw").timeout(5), &from)
        .await?
        .boxed();
    let Some(WatchEvent::Deleted(gone)) = events.try_next().await? else {
        bail!("no deletion")
    };
    ensure!(gone.resource_version() != made.resource_version());
    let short = gauges.watch(&WatchParams::default().timeout(1), &from).await?;
    ensure!(
        !short.try_collect::<Vec<_>>().await?.is_empty(),
        "nothing before its end"
    );
    Ok(())
}

/// Follow a watcher from its beginning through an addition, a change and a deletion.
async fn follow<K>(client: &Client, way: &str, config: watcher::Config) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    for name in ["was-there", "was-too"] {
        gauges.create(&PostParams::default(), &gauge(name)).await?;
    }
    let mut events = watch(Api::<K>::default_namespaced(client.clone()), config.timeout(20)).boxed();
    ensure!(matches!(next(&mut events).await?, Event::Init), "{way}: no beginning");
    let mut initial = BTreeSet::new();
    loop {
        match next(&mut events).await? {
            Event::InitApply(it) => initial.insert(it.name_any()),
            Event::InitDone => break,
            other => bail!("{way}: {other:?}"),
        };
    }
    ensure!(
        initial == ["was-there", "was-too"].map(String::from).into(),
        "{way}: {initial:?}"
    );
    gauges.create(&PostParams::default(), &gauge("new")).await?;
    ensure!(
        matches!(next(&mut events).await?, Event::Apply(it) if it.name_any() == "new"),
        "{way}: no addition"
    );
    gauges
        .patch(
            "was-too",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"high": 9}})),
        )
        .await?;
    ensure!(
        matches!(next(&mut events).await?, Event::Apply(it) if it.meta().generation == Some(2)),
        "{way}: no change"
    );
    for name in ["was-there", "was-too", "new"] {
        gauges.delete(name, &DeleteParams::default()).await?;
        ensure!(
            matches!(next(&mut events).await?, Event::Delete(it) if it.name_any() == name),
            "{way}: no deletion"
        );
    }
    Ok(())
}

async fn next<K>(events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin)) -> Result<Event<K>> {
    Ok(events.try_next().await?.context("the watch ended")?)
}

pub async fn each_way(client: &Client) -> Result<()> {
    follow::<Gauge>(client, "list and watch", watcher::Config::default()).await?;
    follow::<Gauge>(client, "pages", watcher::Config::default().page_size(1)).await?;
    follow::<Gauge>(client, "any revision", watcher::Config::default().any_semantic()).await?;
    follow::<Gauge>(client, "streamed list", watcher::Config::default().streaming_lists()).await?;
    follow::<Gauge>(
        client,
        "streamed, selected",
        watcher::Config::default().streaming_lists().fields("spec.unit=volt"),
    )
    .await?;
    follow::<PartialObjectMeta<Gauge>>(client, "metadata", watcher::Config::default()).await?;
    follow::<PartialObjectMeta<Gauge>>(
        client,
        "streamed metadata",
        watcher::Config::default().streaming_lists(),
    )
    .await?;
    Ok(())
}

pub async fn cached(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let (store, writer) = reflector::store::<Gauge>();
    let mut touched = watch(gauges.clone(), watcher::Config::default().streaming_lists())
        .default_backoff()
        .reflect(writer)
        .touched_objects()
        .predicate_filter(predicates::generation, Default::default())
        .boxed();
    gauges.create(&PostParams::default(), &gauge("kept")).await?;
    ensure!(touched.try_next().await?.is_some_and(|it| it.name_any() == "kept"));
    gauges
        .patch_status(
            "kept",
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"replicas": 3}})),
        )
        .await?;
    gauges
        .patch(
            "kept",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"high": 9}})),
        )
        .await?;
    let seen = touched.try_next().await?.context("the watch ended")?;
    ensure!(
        seen.spec.high == 9 && seen.status.as_ref().is_some_and(|it| it.replicas == 3),
        "{seen:?}"
    );
    store.wait_until_ready().await?;
    let held = store
        .get(&ObjectRef::new("kept").within("default"))
        .context("not in the cache")?;
    ensure!(held.resource_version() == seen.resource_version());
    gauges.delete("kept", &DeleteParams::default()).await?;
    Ok(())
}
