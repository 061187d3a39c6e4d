//! The limits of a gateway: rates and seats of users, tenants and peers.

use std::{net::IpAddr, time::Duration};

use agentwire_store::{Owner, Quota, QuotaKind, Quotas as StoredQuotas};

use super::{
    Party,
    rate::{Exceeded, Rates},
    seats::{Seat, Seats},
    settings::PartyLimits,
};
use crate::{
    codes,
    error::{ApiError, RateState},
    settings::ServerLimits,
};

/// Connections of one peer beyond this machine unless configured.
const PEER_CONNECTIONS: usize = 1000;

/// Seats of a user and of its tenant.
#[derive(Debug)]
pub(crate) struct OwnerSeats {
    _user: Option<Seat>,
    _tenant: Option<Seat>,
}

/// Limits of one kind of party.
#[derive(Debug)]
struct Scope {
    limits: PartyLimits,
    requests: Option<Rates>,
    run_starts: Option<Rates>,
    runs: Seats,
    readers: Seats,
}

impl Scope {
    fn new(limits: &PartyLimits) -> Self {
        Self {
            requests: limits.requests.map(Rates::new),
            run_starts: limits.run_starts.map(Rates::new),
            runs: Seats::default(),
            readers: Seats::default(),
            limits: limits.clone(),
        }
    }
}

/// All limits of a gateway.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// False where there is only one user: then the limits of the server are enough.
    has_users: bool,
    user: Scope,
    tenant: Scope,
    peer_requests: Option<Rates>,
    failures: Option<Rates>,
    connections: Seats,
    peer_connections: Option<usize>,
}

impl Quotas {
    pub(crate) fn new(limits: &ServerLimits, has_users: bool) -> Self {
        Self {
            has_users,
            user: Scope::new(&limits.user),
            tenant: Scope::new(&limits.tenant),
            peer_requests: limits.peer.requests.map(Rates::new),
            failures: limits.peer.failures.map(Rates::new),
            connections: Seats::default(),
            peer_connections: limits.peer.connections,
        }
    }

    /// A user and its tenant, each with its limits; nothing where there is one user.
    fn parties(&self, owner: &Owner) -> impl Iterator<Item = (&Scope, Party)> {
        let parties = [(&self.user, Party::user(owner)), (&self.tenant, Party::tenant(owner))];
        parties.into_iter().filter(|_| self.has_users)
    }

    /// A seat for a connection; `None` if the peer has too many.
    pub(crate) fn connection(&self, address: IpAddr, is_proxy: bool) -> Option<Seat> {
        let address = address.to_canonical();
        let limit = match self.peer_connections {
            _ if is_proxy => None,
            None if address.is_loopback() => None,
            limit => limit.or(Some(PEER_CONNECTIONS)),
        };
        self.connections.take(Party::peer(Some(address)), limit)
    }

    /// Counts a request of a peer.
    pub(crate) fn peer_request(&self, peer: Option<IpAddr>) -> Result<(), ApiError> {
        let party = Party::peer(peer);
        self.peer_requests
            .as_ref()
            .map_or(Ok(()), |rates| rates.check(&party))
            .map_err(|it| rate_limited(&party, &it))
    }

    /// Counts a failed authentication of a peer, and replaces the error after too many.
    pub(crate) fn failure(&self, peer: Option<IpAddr>, error: ApiError) -> ApiError {
        if error.status().as_u16() != 401 {
            return error;
        }
        let party = Party::peer(peer);
        let counted = self.failures.as_ref().map_or(Ok(()), |rates| rates.check(&party));
        counted.err().map_or(error, |exceeded| rate_limited(&party, &exceeded))
    }

    /// Counts a request of a user.
    pub(crate) fn request(&self, owner: &Owner) -> Result<(), ApiError> {
        self.rate(owner, |scope| scope.requests.as_ref())
    }

    fn rate(&self, owner: &Owner, rates: impl Fn(&Scope) -> Option<&Rates>) -> Result<(), ApiError> {
        for (scope, party) in self.parties(owner) {
            if let Some(rates) = rates(scope) {
                rates.check(&party).map_err(|exceeded| rate_limited(&party, &exceeded))?;
            }
        }
        Ok(())
    }

    /// Seats for a run that starts, which counts as a start.
    pub(crate) fn run(&self, owner: &Owner) -> Result<OwnerSeats, ApiError> {
        let seats = self.seats(owner, "runs", |scope| (&scope.runs, scope.limits.runs))?;
        for (scope, party) in self.parties(owner) {
            if let Some(Err(exceeded)) = scope.run_starts.as_ref().map(|rates| rates.check(&party)) {
                let wait = seconds(exceeded.retry);
                return Err(exceeded_quota(&party, "run_starts").retry_after(wait));
            }
        }
        Ok(seats)
    }

    /// Seats for a run that cannot be refused, because it has started before.
    pub(crate) fn known_run(&self, owner: &Owner) -> Option<OwnerSeats> {
        self.seats(owner, "runs", |scope| (&scope.runs, None)).ok()
    }

    /// Seats for a reader.
    pub(crate) fn reader(&self, owner: &Owner) -> Result<OwnerSeats, ApiError> {
        self.seats(owner, "readers", |scope| (&scope.readers, scope.limits.readers))
    }

    fn seats(
        &self,
        owner: &Owner,
        name: &str,
        seats: impl Fn(&Scope) -> (&Seats, Option<usize>),
    ) -> Result<OwnerSeats, ApiError> {
        let mut taken = [None, None];
        for ((scope, party), seat) in self.parties(owner).zip(&mut taken) {
            let (seats, limit) = seats(scope);
            let refused = exceeded_quota(&party, name).retry_after(5);
            *seat = Some(seats.take(party, limit).ok_or(refused)?);
        }
        let [user, tenant] = taken;
        Ok(OwnerSeats { _user: user, _tenant: tenant })
    }

    /// The quotas that the store counts for all gateways on it; none where there is one user.
    pub(crate) fn stored(&self) -> StoredQuotas {
        let quota = |scope: &Scope| Quota {
            runs: scope.limits.runs.map(|runs| runs as u64),
            threads: scope.limits.threads.map(|threads| threads as u64),
            bytes: scope.limits.storage,
        };
        match self.has_users {
            true => StoredQuotas { user: quota(&self.user), tenant: quota(&self.tenant) },
            false => StoredQuotas::default(),
        }
    }
}

/// The error of a start that the store refused.
pub(crate) fn over_quota(owner: &Owner, is_tenant: bool, quota: QuotaKind) -> ApiError {
    let party = if is_tenant { Party::tenant(owner) } else { Party::user(owner) };
    match quota {
        QuotaKind::Runs => exceeded_quota(&party, "runs").retry_after(5),
        QuotaKind::Threads => exceeded_quota(&party, "threads"),
        QuotaKind::Bytes => exceeded_quota(&party, "storage"),
    }
}

/// The error of a party that has all that its quota allows.
fn exceeded_quota(party: &Party, name: &str) -> ApiError {
    let kind = party.kind();
    ApiError::new(codes::QUOTA_EXCEEDED, format!("the {kind} has reached its quota `{name}`"))
        .hint(format!("`limits.{kind}.{name}` in the configuration is the quota"))
}

fn rate_limited(party: &Party, exceeded: &Exceeded) -> ApiError {
    let kind = party.kind();
    let wait = seconds(exceeded.retry);
    let state = RateState { policy: kind, count: exceeded.rate.count, period: exceeded.rate.period, wait };
    ApiError::new(codes::RATE_LIMITED, format!("too many requests of the {kind}"))
        .retry_after(wait)
        .with_rate(state)
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
