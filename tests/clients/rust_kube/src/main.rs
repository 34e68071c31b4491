//! A program of a user of kube-rs: a derived kind, calls, watches, a controller, an election.

mod calls;
mod kinds;
mod operating;
mod outlasting;
mod watching;

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;

async fn step<F: Future<Output = Result<()>>>(name: &str, todo: F) -> Result<()> {
    let done = tokio::time::timeout(Duration::from_secs(60), todo).await;
    done.with_context(|| format!("{name}: not in time"))?
        .context(name.to_string())?;
    println!("{name}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = Client::try_default().await?;
    if std::env::args().nth(1).as_deref() == Some("outlast") {
        return outlasting::outlast(&client).await;
    }
    step("definition applied and established", calls::define(&client)).await?;
    step("kinds discovered", calls::discover(&client)).await?;
    step("objects written", calls::write(&client)).await?;
    step("applied, in conflict and by force", calls::apply(&client)).await?;
    step("status and scale", calls::subresources(&client)).await?;
    step("lists, pages, metadata", calls::read(&client)).await?;
    step("errors told", calls::errors(&client)).await?;
    step("deleted", calls::delete(&client)).await?;
    step("a watch from a revision", watching::raw(&client)).await?;
    step("watches begun in each way", watching::each_way(&client)).await?;
    step("a cache filled", watching::cached(&client)).await?;
    step("leaders elected", operating::elect(&client)).await?;
    step("an operator runs", operating::operate(&client)).await?;
    step("the definition goes", calls::undefine(&client)).await?;
    println!("done");
    Ok(())
}
