//! One call after the other: definition, discovery, writes, reads, errors.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    Preconditions, VersionMatch,
};
use kube::core::{PartialObjectMetaExt, Status};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResourceExt, Discovery, Resource, ResourceExt, discovery};
use serde_json::{Value, json};

use crate::kinds::{DEFINITION, GROUP, Gauge, GaugeSpec, Mark, Mode};

pub fn gauge(name: &str) -> Gauge {
    Gauge::new(
        name,
        GaugeSpec {
            low: 1,
            high: 5,
            unit: "volt".into(),
            ..Default::default()
        },
    )
}

/// What the server says to a call that it must refuse.
pub fn refused<T>(answer: kube::Result<T>) -> Result<Status> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(*status),
        Err(other) => bail!("no answer of the server: {other:?}"),
        Ok(_) => bail!("it was not refused"),
    }
}

pub async fn define(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let apply = PatchParams::apply("rust").validation_strict();
    let made = definitions
        .patch(DEFINITION, &apply, &Patch::Apply(Gauge::crd()))
        .await?;
    await_condition(definitions.clone(), DEFINITION, conditions::is_crd_established()).await?;
    let again = definitions
        .patch(DEFINITION, &apply, &Patch::Apply(Gauge::crd()))
        .await?;
    ensure!(
        again.metadata.generation == made.metadata.generation,
        "the second apply changed something"
    );
    let mut wrong = serde_json::to_value(Gauge::crd())?;
    wrong["spec"]["scope"] = json!("Everywhere");
    let status = refused(
        definitions
            .patch(DEFINITION, &PatchParams::apply("other").force(), &Patch::Apply(wrong))
            .await,
    )?;
    ensure!(
        status.is_invalid() && status.message.contains("spec.scope"),
        "{status:?}"
    );
    Ok(())
}

pub async fn discover(client: &Client) -> Result<()> {
    ensure!(client.apiserver_version().await?.major == "1");
    for (way, known) in [
        ("by groups", Discovery::new(client.clone()).run().await?),
        ("aggregated", Discovery::new(client.clone()).run_aggregated().await?),
        (
            "one group",
            Discovery::new(client.clone()).filter(&[GROUP]).run().await?,
        ),
        (
            "one group, aggregated",
            Discovery::new(client.clone()).filter(&[GROUP]).run_aggregated().await?,
        ),
    ] {
        let (found, can) = known
            .resolve_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Gauge"))
            .context(way)?;
        ensure!(
            found.plural == "gauges" && can.supports_operation("deletecollection"),
            "{way}: {found:?} {can:?}"
        );
        let below: Vec<_> = can.subresources.iter().map(|(it, _)| it.plural.as_str()).collect();
        ensure!(
            below.contains(&"status") && below.contains(&"scale"),
            "{way}: {below:?}"
        );
        ensure!(
            known.get("coordination.k8s.io").is_some() == !way.starts_with("one"),
            "{way}"
        );
    }
    let (found, _) = discovery::pinned_kind(client, &GroupVersionKind::gvk(GROUP, "v1", "Gauge")).await?;
    ensure!(found == ApiResource::erase::<Gauge>(&()));
    ensure!(
        discovery::group(client, GROUP)
            .await?
            .recommended_kind("Gauge")
            .is_some()
    );
    ensure!(discovery::group(client, "no.example.com").await.is_err());
    Ok(())
}

pub async fn write(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let dry = PostParams {
        dry_run: true,
        field_manager: Some("rust".into()),
    };
    gauges.create(&dry, &gauge("one")).await?;
    ensure!(gauges.get_opt("one").await?.is_none(), "a dry run stored something");
    let first = gauges.create(&PostParams::default(), &gauge("one")).await?;
    let mut newer = first.clone();
    newer.spec.mode = Some(Mode::Steady { seconds: 3 });
    let newer = gauges.replace("one", &PostParams::default(), &newer).await?;
    ensure!(newer.metadata.generation == Some(2));
    let late = refused(gauges.replace("one", &PostParams::default(), &first).await)?;
    ensure!(late.is_conflict() && late.code == 409, "{late:?}");

    let merged = gauges
        .patch(
            "one",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"mode": {"steady": null, "once": {"when": "now"}}}})),
        )
        .await?;
    ensure!(
        merged.spec.mode == Some(Mode::Once { when: "now".into() }),
        "{merged:?}"
    );
    let ops = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/high", "value": 5},
        {"op": "replace", "path": "/spec/high", "value": 7},
    ]))?;
    let changed = gauges
        .patch("one", &PatchParams::default(), &Patch::Json::<()>(ops))
        .await?;
    ensure!(changed.spec.high == 7);
    let strategic = refused(
        gauges
            .patch("one", &PatchParams::default(), &Patch::Strategic(json!({})))
            .await,
    )?;
    ensure!(strategic.code == 415, "{strategic:?}");

    let mut entry = gauges.entry("two").await?.or_insert(|| gauge("two"));
    entry.commit(&PostParams::default()).await?;
    entry.get_mut().spec.high = 8;
    entry.commit(&PostParams::default()).await?;
    ensure!(gauges.get("two").await?.spec.high == 8);
    Ok(())
}

pub async fn apply(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let mut wanted = gauge("applied");
    wanted.spec.marks = vec![Mark {
        name: "a".into(),
        at: 1,
    }];
    gauges
        .patch("applied", &PatchParams::apply("first"), &Patch::Apply(&wanted))
        .await?;
    let mut other: Value = serde_json::to_value(&wanted)?;
    other["spec"] = json!({"high": 9, "marks": [{"name": "b", "at": 2}]});
    let status = refused(
        gauges
            .patch("applied", &PatchParams::apply("second"), &Patch::Apply(&other))
            .await,
    )?;
    let cause = &status.details.as_ref().context("details")?.causes[0];
    ensure!(
        status.is_conflict() && cause.field == ".spec.high" && cause.message.contains("\"first\""),
        "{status:?}"
    );
    let forced = gauges
        .patch("applied", &PatchParams::apply("second").force(), &Patch::Apply(&other))
        .await?;
    ensure!(
        forced.spec.high == 9 && forced.spec.marks.len() == 2 && forced.spec.low == 1,
        "{forced:?}"
    );
    let managers: Vec<_> = forced
        .managed_fields()
        .iter()
        .filter_map(|it| it.manager.as_deref())
        .collect();
    ensure!(managers == ["first", "second"], "{managers:?}");
    let unknown = json!({"apiVersion": "rust.example.com/v1", "kind": "Gauge", "spec": {"high": 9, "hihg": 1}});
    let status = refused(
        gauges
            .patch(
                "applied",
                &PatchParams::apply("second").validation_strict(),
                &Patch::Apply(&unknown),
            )
            .await,
    )?;
    ensure!(status.message.contains("hihg"), "{status:?}");
    Ok(())
}

pub async fn subresources(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let patch = json!({"spec": {"high": 1000}, "status": {"replicas": 1, "selector": "gauge=one"}});
    let seen = gauges
        .patch_status("one", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(
        seen.spec.high == 7 && seen.status.as_ref().is_some_and(|it| it.replicas == 1),
        "{seen:?}"
    );
    let mut status = gauges.get_status("one").await?;
    status.status.get_or_insert_default().replicas = 2;
    gauges.replace_status("one", &PostParams::default(), &status).await?;
    let scale = gauges.get_scale("one").await?;
    ensure!(
        scale
            .status
            .as_ref()
            .is_some_and(|it| it.replicas == 2 && it.selector.as_deref() == Some("gauge=one")),
        "{scale:?}"
    );
    let scale = gauges
        .patch_scale(
            "one",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 4}})),
        )
        .await?;
    ensure!(scale.spec.as_ref().and_then(|it| it.replicas) == Some(4));
    let mut more = scale.clone();
    more.spec.get_or_insert_default().replicas = Some(5);
    gauges.replace_scale("one", &PostParams::default(), &more).await?;
    ensure!(gauges.get("one").await?.spec.replicas == 5);
    let beyond = refused(
        gauges
            .patch_scale(
                "one",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"replicas": 11}})),
            )
            .await,
    )?;
    ensure!(beyond.is_invalid(), "{beyond:?}");
    Ok(())
}

pub async fn read(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let volts = gauges.list(&ListParams::default().fields("spec.unit=volt")).await?;
    ensure!(volts.items.len() == 3 && volts.items.iter().all(|it| it.meta().managed_fields.is_some()));
    ensure!(
        gauges
            .list(&ListParams::default().fields("spec.unit=ohm"))
            .await?
            .items
            .is_empty()
    );
    let bad = refused(gauges.list(&ListParams::default().fields("spec.low=1")).await)?;
    ensure!(
        bad.code == 400 && bad.message.contains("field label not supported"),
        "{bad:?}"
    );
    let page = gauges.list(&ListParams::default().limit(2)).await?;
    let token = page.metadata.continue_.clone().context("a token")?;
    let rest = gauges
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await?;
    ensure!((page.items.len(), rest.items.len()) == (2, 1));
    let then = page.metadata.resource_version.clone().context("a revision")?;
    gauges
        .list(&ListParams::default().at(&then).matching(VersionMatch::Exact))
        .await?;
    gauges.list(&ListParams::default().match_any()).await?;

    let meta = gauges.get_metadata("one").await?;
    ensure!(meta.types.as_ref().is_some_and(|it| it.kind == "PartialObjectMetadata") && meta.name_any() == "one");
    ensure!(gauges.list_metadata(&ListParams::default()).await?.items.len() == 3);
    let label = kube::core::ObjectMeta {
        labels: Some([("team".into(), "night".into())].into()),
        ..Default::default()
    };
    let patch = label.into_request_partial::<Gauge>();
    gauges
        .patch_metadata("one", &PatchParams::apply("labels"), &Patch::Apply(&patch))
        .await?;
    ensure!(
        gauges
            .list(&ListParams::default().labels("team in (night, day)"))
            .await?
            .items
            .len()
            == 1
    );

    let kind = ApiResource::erase::<Gauge>(&());
    let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    ensure!(dynamic.get("one").await?.data["spec"]["replicas"] == 5);
    let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    ensure!(everywhere.list(&ListParams::default()).await?.items.len() == 3);
    Ok(())
}

pub async fn errors(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let there = refused(gauges.create(&PostParams::default(), &gauge("one")).await)?;
    ensure!(there.is_already_exists() && there.code == 409, "{there:?}");
    let missing = refused(gauges.get("missing").await)?;
    ensure!(
        missing.is_not_found() && missing.message == "gauges.rust.example.com \"missing\" not found",
        "{missing:?}"
    );
    let mut upside_down = gauge("upside-down");
    upside_down.spec.low = 6;
    let invalid = refused(gauges.create(&PostParams::default(), &upside_down).await)?;
    let causes = &invalid.details.as_ref().context("details")?.causes;
    ensure!(
        invalid.is_invalid()
            && causes
                .iter()
                .any(|it| it.field == "spec.low" && it.message.contains("low is above high")),
        "{invalid:?}"
    );
    let long = refused(
        gauges
            .create(&PostParams::default(), &gauge("a-name-that-is-much-too-long"))
            .await,
    )?;
    ensure!(long.message.contains("the name is too long"), "{long:?}");
    let ever = refused(
        gauges
            .patch(
                "one",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"unit": "ohm"}})),
            )
            .await,
    )?;
    ensure!(
        ever.is_invalid() && ever.message.contains("the unit is for ever"),
        "{ever:?}"
    );
    let both = json!({"spec": {"mode": {"steady": {"seconds": 1}}}});
    let both = refused(gauges.patch("one", &PatchParams::default(), &Patch::Merge(both)).await)?;
    ensure!(both.is_invalid() && both.message.contains("spec.mode"), "{both:?}");

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let held: Api<ConfigMap> = Api::namespaced(client.clone(), "rust-held");
    namespaces
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": "rust-held"}}))?,
        )
        .await?;
    let keeper = json!({"metadata": {"name": "keeper", "finalizers": ["rust.example.com/held"]}});
    held.create(&PostParams::default(), &serde_json::from_value(keeper)?)
        .await?;
    namespaces.delete("rust-held", &DeleteParams::default()).await?;
    let forbidden = refused(
        held.create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": "late"}}))?,
        )
        .await,
    )?;
    ensure!(forbidden.is_forbidden() && forbidden.code == 403, "{forbidden:?}");
    held.patch(
        "keeper",
        &PatchParams::default(),
        &Patch::Merge(json!({"metadata": {"finalizers": null}})),
    )
    .await?;
    await_condition(namespaces, "rust-held", |it: Option<&Namespace>| it.is_none()).await?;
    Ok(())
}

pub async fn delete(client: &Client) -> Result<()> {
    let gauges: Api<Gauge> = Api::default_namespaced(client.clone());
    let one = gauges.get("one").await?;
    let stale = DeleteParams::default().preconditions(Preconditions {
        uid: Some("other".into()),
        resource_version: None,
    });
    ensure!(refused(gauges.delete("one", &stale).await)?.is_conflict());
    gauges.delete("one", &DeleteParams::default().dry_run()).await?;
    ensure!(gauges.get_opt("one").await?.is_some(), "a dry run deleted something");
    let this = DeleteParams::foreground().preconditions(Preconditions {
        uid: one.uid(),
        resource_version: None,
    });
    ensure!(
        gauges.delete("one", &this).await?.left().is_some(),
        "it does not wait for its dependents"
    );
    let gone = await_condition(
        gauges.clone(),
        "one",
        conditions::is_deleted(&one.uid().context("uid")?),
    )
    .await?;
    ensure!(gone.is_none());
    let left = gauges
        .delete_collection(&DeleteParams::default(), &ListParams::default().labels("team!=night"))
        .await?;
    ensure!(left.left().is_some_and(|it| it.items.len() == 2));
    ensure!(gauges.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

pub async fn undefine(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let uid = definitions.get(DEFINITION).await?.uid().context("uid")?;
    definitions.delete(DEFINITION, &DeleteParams::default()).await?;
    await_condition(definitions, DEFINITION, conditions::is_deleted(&uid)).await?;
    Ok(())
}
