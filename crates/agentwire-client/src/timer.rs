//! Timeouts and delays: those of tokio, or of the browser in a page.

#[cfg(not(target_family = "wasm"))]
pub(crate) use tokio::time::{sleep, timeout};

#[cfg(target_family = "wasm")]
pub(crate) use self::page::{sleep, timeout};

#[cfg(target_family = "wasm")]
mod page {
    use std::{future::Future, pin::pin, time::Duration};

    use futures_util::future::{Either, select};
    use gloo_timers::future::TimeoutFuture;
    use send_wrapper::SendWrapper;

    /// Waits. Timers of a page have a limit of 24 days.
    pub(crate) async fn sleep(time: Duration) {
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        SendWrapper::new(TimeoutFuture::new(millis.unsigned_abs())).await;
    }

    /// The result of a future, or an error after `time`.
    pub(crate) async fn timeout<T>(time: Duration, future: impl Future<Output = T>) -> Result<T, ()> {
        match select(pin!(future), pin!(sleep(time))).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(()),
        }
    }
}
