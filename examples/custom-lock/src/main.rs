//! A custom session lock, in files that other programs can lock too: `cargo run -p custom-lock [ADDRESS [FOLDER]]`, by
//! default at 127.0.0.1:7117 with the locks in `locks`.

use std::{env, error::Error, io, path::PathBuf, sync::Arc};

use agentwire_gateway::{
    AgentConfig, Gateway, UpstreamError,
    agent::{BoxFuture, Demo},
    codes,
    hooks::{Hooked, RunContext, SessionLock, failed},
    serve,
    settings::Settings,
};
use tokio::{fs, net::TcpListener};

/// A lock file for each thread in use: `TENANT.USER.AGENT.THREAD.lock`, each part in hexadecimal.
struct Files(PathBuf);

impl Files {
    fn of(&self, run: &RunContext) -> PathBuf {
        // Two users may have a thread of the same name. Ids may contain any character; file names may not.
        let parts = [
            run.owner.tenant.as_str(),
            run.owner.user.as_str(),
            run.owner.agent.as_str(),
            run.thread.as_str(),
        ];
        let hex = |part: &str| part.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.0.join(format!("{}.lock", parts.map(hex).join(".")))
    }
}

impl SessionLock for Files {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        Box::pin(async move {
            match fs::OpenOptions::new().write(true).create_new(true).open(self.of(run)).await {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(UpstreamError::new(
                    codes::THREAD_IS_LOCKED,
                    "somebody else works on this conversation",
                )),
                Err(error) => Err(failed(format!("the lock could not be taken: {error}"))),
            }
        })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        Box::pin(async move {
            if let Err(error) = fs::remove_file(self.of(run)).await {
                eprintln!("the lock of `{}` could not be freed: {error}", run.thread);
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7117".into());
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "locks".into()));
    fs::create_dir_all(&folder).await?;
    let store = agentwire_store::open("memory:", agentwire_store::Options::default()).await?;
    let gateway = Gateway::builder(store, Settings::default())
        .lock(Arc::new(Files(folder)))
        .agent("demo", AgentConfig::new(Demo::default()))
        .build();
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let asked_to_end = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    Ok(serve(gateway, listener, asked_to_end).await?)
}
