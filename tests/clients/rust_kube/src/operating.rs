//! An operator: elected, with children, a finalizer and events; and the world that it reacts to.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::channel::oneshot;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent};
use k8s_openapi::api::events::v1::Event as Noted;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use kube_lease_manager::{LeaseCreateMode, LeaseManager, LeaseManagerBuilder};
use serde_json::json;

use crate::calls::gauge;
use crate::kinds::Gauge;

const FINALIZER: &str = "rust.example.com/cleanup";

struct World {
    client: Client,
    recorder: Recorder,
}

#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self(format!("{error:?}"))
    }
}

async fn reconcile(gauge: Arc<Gauge>, context: Arc<World>) -> Result<Action, Failed> {
    let gauges: Api<Gauge> = Api::namespaced(context.client.clone(), &gauge.namespace().unwrap_or_default());
    let done = finalizer(&gauges, FINALIZER, gauge, async |event| match event {
        Finalizer::Apply(gauge) => settle(gauge, &context).await,
        Finalizer::Cleanup(gauge) => note(&gauge, &context, "CleanedUp").await,
    });
    done.await.map_err(|error| Failed(format!("{error:?}")))
}

async fn settle(gauge: Arc<Gauge>, context: &World) -> Result<Action, Failed> {
    let space = gauge.namespace().unwrap_or_default();
    let children: Api<ConfigMap> = Api::namespaced(context.client.clone(), &space);
    let gauges: Api<Gauge> = Api::namespaced(context.client.clone(), &space);
    let name = gauge.name_any();
    let owner = gauge.controller_owner_ref(&()).ok_or_else(|| Failed("no uid".into()))?;
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "data": {"high": gauge.spec.high.to_string()},
    });
    let apply = PatchParams::apply("rust-operator").force();
    children.patch(&name, &apply, &Patch::Apply(child)).await?;
    let status = json!({"apiVersion": "rust.example.com/v1", "kind": "Gauge", "status": {"replicas": gauge.spec.high}});
    gauges.patch_status(&name, &apply, &Patch::Apply(status)).await?;
    note(&gauge, context, "Settled").await
}

async fn note(gauge: &Gauge, context: &World, reason: &str) -> Result<Action, Failed> {
    let event = Event {
        type_: EventType::Normal,
        reason: reason.into(),
        note: Some("as wanted".into()),
        action: "Reconcile".into(),
        secondary: None,
    };
    context.recorder.publish(&event, &gauge.object_ref(&())).await?;
    Ok(Action::requeue(Duration::from_secs(300)))
}

pub async fn operate(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let children: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let recorder = Recorder::new(
        client.clone(),
        Reporter {
            controller: "rust-operator".into(),
            instance: Some("story".into()),
        },
    );
    let running = Controller::new(gauges.clone(), watcher::Config::default())
        .owns(children.clone(), watcher::Config::default().streaming_lists())
        .graceful_shutdown_on(async { stopped.await.unwrap_or_default() })
        .run(
            reconcile,
            |_, error, _| {
                println!("# {error}");
                Action::requeue(Duration::from_millis(100))
            },
            Arc::new(World {
                client: client.clone(),
                recorder,
            }),
        )
        .for_each(async |_| ());
    let world = async {
        let done = world(client, &gauges, &children).await;
        stop.send(()).ok();
        done
    };
    futures::join!(world, running).0
}

async fn world(client: &Client, gauges: &Api<Gauge>, children: &Api<ConfigMap>) -> Result<()> {
    let high = |wanted: &'static str| {
        move |it: Option<&ConfigMap>| it.is_some_and(|it| it.data.as_ref().is_some_and(|it| it["high"] == wanted))
    };
    let settled = |wanted: i32| {
        move |it: Option<&Gauge>| it.is_some_and(|it| it.status.as_ref().is_some_and(|it| it.replicas == wanted))
    };
    gauges.create(&PostParams::default(), &gauge("run")).await?;
    await_condition(children.clone(), "run", high("5")).await?;
    let seen = await_condition(gauges.clone(), "run", settled(5))
        .await?
        .context("gone")?;
    ensure!(seen.finalizers() == [FINALIZER]);
    println!("an owned object applied, a status too");
    gauges
        .patch(
            "run",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"high": 6}})),
        )
        .await?;
    await_condition(children.clone(), "run", high("6")).await?;
    println!("an owned object follows");
    let child = children.get("run").await?;
    children.delete("run", &DeleteParams::default()).await?;
    await_condition(children.clone(), "run", |it: Option<&ConfigMap>| {
        it.is_some_and(|it| it.uid() != child.uid())
    })
    .await?;
    println!("an owned object comes back");
    let uid = seen.uid().context("uid")?;
    gauges.delete("run", &DeleteParams::background()).await?;
    await_condition(gauges.clone(), "run", conditions::is_deleted(&uid)).await?;
    let child = children
        .get_opt("run")
        .await?
        .and_then(|it| it.uid())
        .unwrap_or_default();
    await_condition(children.clone(), "run", conditions::is_deleted(&child)).await?;
    println!("an owner gone, its objects collected");

    let notes: Api<Noted> = Api::default_namespaced(client.clone());
    let noted = notes.list(&ListParams::default()).await?;
    let mine: Vec<_> = noted
        .iter()
        .filter(|it| it.reporting_controller.as_deref() == Some("rust-operator"))
        .collect();
    let settled = mine
        .iter()
        .find(|it| it.reason.as_deref() == Some("Settled"))
        .context("no event")?;
    ensure!(
        settled.series.as_ref().is_some_and(|it| it.count > 1)
            && mine.iter().any(|it| it.reason.as_deref() == Some("CleanedUp")),
        "{mine:?}"
    );
    let core: Api<CoreEvent> = Api::default_namespaced(client.clone());
    let fields = format!("involvedObject.uid={uid},reason=Settled");
    ensure!(
        core.list(&ListParams::default().fields(&fields)).await?.items.len() == 1,
        "not among core's events"
    );
    println!("events recorded");
    Ok(())
}

pub async fn elect(client: &Client) -> Result<()> {
    let (one, other) = (manager(client, "one").await?, manager(client, "other").await?);
    ensure!(one.changed().await?, "nobody leads");
    let second = tokio::time::timeout(Duration::from_millis(500), other.changed()).await;
    ensure!(second.is_err(), "two lead");
    one.release().await?;
    ensure!(other.changed().await?, "nobody takes over");
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = leases.get("rust-story").await?;
    ensure!(
        lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref()) == Some("other"),
        "{lease:?}"
    );
    other.release().await?;
    leases.delete("rust-story", &DeleteParams::default()).await?;
    Ok(())
}

async fn manager(client: &Client, identity: &str) -> Result<LeaseManager> {
    Ok(LeaseManagerBuilder::new(client.clone(), "rust-story")
        .with_namespace("default")
        .with_identity(identity)
        .with_field_manager(identity)
        .with_duration(10)
        .with_grace(2)
        .with_create_mode(LeaseCreateMode::AutoCreate)
        .build()
        .await?)
}
