//! Settings of what happens on this host's sockets: windows and congestion control.
//!
//! signal: sections [receive] and [congestion] · model: the cures' own settings and bounds · action: those settings, or a complaint.

use std::path::{Path, PathBuf};

use algo::rwnd::drwa::Form;
use units::{Bytes, Duration};

use super::Result;
use super::section::Section;
use crate::cures::Prefix;
use crate::cures::congestion;
use crate::cures::receive::{self, Places};

/// Whose connections: a number, or a name of this host.
pub(super) fn user(scope: &Section<'_>) -> Result<Option<u32>> {
    let unknown = |name: &str| scope.wrong("user", &format!("this host knows no user \"{name}\""));
    if let Some(number) = scope.value("user").and_then(toml_edit::Value::as_integer) {
        return u32::try_from(number).map(Some).map_err(|_| unknown(&number.to_string()));
    }
    let Some(name) = scope.filled("user")? else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let found = nix::unistd::User::from_name(&name)
        .map_err(|e| scope.wrong("user", &format!("{name}: {e}")))?;
    found.map(|user| Some(user.uid.as_raw())).ok_or_else(|| unknown(&name))
}

pub(super) fn receive(
    at: &Section<'_>,
    cgroup: Option<PathBuf>,
    user: Option<u32>,
    pins: &Path,
) -> Result<Option<receive::Settings>> {
    if !at.flag("enabled")?.unwrap_or(true) {
        return Ok(None);
    }
    let mut settings =
        receive::Settings { cgroup, user, pins: pins.to_owned(), ..receive::Settings::default() };
    let law = &mut settings.law;
    if let Some(lambda) = at.number("lambda", 1.0, 16.0)? {
        law.lambda = (lambda * 16.0).round() as u64;
    }
    law.form = match at.text("form")?.as_deref() {
        None | Some("rate") => Form::Rate,
        Some("paper") => Form::Paper,
        Some(other) => {
            return Err(at.wrong("form", &format!("\"{other}\" is neither \"rate\" nor \"paper\"")));
        }
    };
    if let Some(average) = at.number("average", 0.0, 0.9375)? {
        law.alpha = (average * 16.0).round() as u64;
    }
    law.quick = at.flag("quick")?.unwrap_or(law.quick);
    law.min_window = at.whole("floor", 1, 1_000)?.unwrap_or(law.min_window);
    law.increment = at.whole("increment", 0, 1_000)?.unwrap_or(law.increment);
    law.max = at.parsed("largest")?.unwrap_or(law.max);
    if law.max < Bytes(65_536) || law.max > Bytes(1 << 30) {
        return Err(at.wrong("largest", "expected 64 KiB to 1 GiB"));
    }
    if let Some(age) = at.parsed::<Duration>("rtt_min_age")? {
        law.rtt_min_age = (age.0 > 0).then_some(age);
    }
    settings.start = at.parsed("start")?.unwrap_or(settings.start);
    settings.shared_minimum = at.flag("shared_minimum")?.unwrap_or(settings.shared_minimum);
    settings.rate_term = at.flag("rate_term")?.unwrap_or(settings.rate_term);
    settings.observe = at.flag("observe")?.unwrap_or(settings.observe);
    settings.places = match (at.prefixes("only")?, at.prefixes("except")?) {
        (only, except) if only.is_empty() && except.is_empty() => Places::All,
        (only, except) if except.is_empty() => Places::Only(only),
        (only, except) if only.is_empty() => Places::Except(except),
        _ => return Err(at.wrong("except", "either only or except, not both")),
    };
    Ok(Some(settings))
}

pub(super) fn congestion(
    at: &Section<'_>,
    cgroup: Option<PathBuf>,
    pins: &Path,
) -> Result<Option<congestion::Settings>> {
    let live = at.flag("live")?.unwrap_or(true);
    let routes = named(at, "routes", "prefixes", "0.0.0.0/0")?;
    let routes: Vec<(Prefix, String)> = routes
        .into_iter()
        .map(|(prefix, name)| {
            Ok((prefix.parse().map_err(|e: String| at.wrong("routes", &e))?, name))
        })
        .collect::<Result<_>>()?;
    let groups = named(at, "cgroups", "cgroups", "/sys/fs/cgroup/backup.slice")?;
    let groups: Vec<(PathBuf, String)> =
        groups.into_iter().map(|(path, name)| (path.into(), name)).collect();
    if routes.is_empty() && groups.is_empty() {
        return Ok(None);
    }
    Ok(Some(congestion::Settings { routes, groups, live, cgroup, pins: pins.to_owned() }))
}

/// A table of names of congestion controls.
fn named(at: &Section<'_>, key: &str, what: &str, example: &str) -> Result<Vec<(String, String)>> {
    let Some(item) = at.table.and_then(|table| table.get(key)) else { return Ok(Vec::new()) };
    let Some(table) = item.as_table_like() else {
        let text = format!("expected {what} with names, as {{ \"{example}\" = \"bbr\" }}");
        return Err(at.wrong(key, &text));
    };
    let one = |(of, name): (&str, &toml_edit::Item)| match name.as_str() {
        Some(name) if !name.is_empty() && name.len() < 16 => Ok((of.to_owned(), name.to_owned())),
        _ => Err(at.wrong(key, &format!("{of}: expected the name of a congestion control"))),
    };
    table.iter().map(one).collect()
}
