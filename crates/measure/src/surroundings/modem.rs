//! What ModemManager says of the modem behind a device: radio technologies and signal.
//!
//! By its own program `mmcli`, whose JSON (`-J`) is stable. Reading needs no rights. Where the program is absent or does
//! not answer, nothing is known. Left out: subscriber, equipment, operator and cell, which name a person or a place.
//! The signal's details are refreshed only after `mmcli --signal-setup`, which is not called here.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

/// For one call. It answers in 0.1 s; a daemon that hangs must not delay a measurement.
const TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// Of one answer, bytes: far more than a modem has properties, and less than a pipe holds.
const MAX_BYTES: u64 = 60_000;

/// A mobile modem.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Modem {
    /// `lte`, `5gnr` and others, as ModemManager names them.
    pub technologies: Vec<String>,
    /// Its quality of the signal, %.
    pub signal_percent: Option<f64>,
    /// Of each technology with a signal.
    pub signals: Vec<Signal>,
}

/// Signal of one technology.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Signal {
    /// As in [`Modem::technologies`], but `5g` for 5G.
    pub technology: String,
    /// Power of all that is received, dBm.
    pub rssi_dbm: Option<f64>,
    /// Power of the reference signal, dBm.
    pub rsrp_dbm: Option<f64>,
    /// Its quality, dB.
    pub rsrq_db: Option<f64>,
    /// Ratio of signal to noise, dB.
    pub snr_db: Option<f64>,
}

impl Modem {
    /// The modem that has a device among its ports.
    pub fn of(device: &str) -> Option<Modem> {
        let call = |arguments: &[&str]| answer(Command::new("mmcli").args(arguments).arg("-J"));
        Modem::from(device, call)
    }

    /// As `call` answers, which takes the arguments of `mmcli`.
    fn from(device: &str, mut call: impl FnMut(&[&str]) -> Option<Value>) -> Option<Modem> {
        let list = call(&["-L"])?;
        list["modem-list"].as_array()?.iter().filter_map(Value::as_str).find_map(|path| {
            let found = call(&["-m", path])?;
            let generic = &found["modem"]["generic"];
            let wanted = format!("{device} (net)");
            generic["ports"].as_array()?.iter().find(|port| **port == *wanted)?;
            let signals = call(&["-m", path, "--signal-get"]).unwrap_or_default();
            let technologies = generic["access-technologies"].as_array();
            Some(Modem {
                technologies: technologies
                    .map(|all| {
                        all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect()
                    })
                    .unwrap_or_default(),
                signal_percent: number(&generic["signal-quality"]["value"]),
                signals: signals["modem"]["signal"]
                    .as_object()
                    .map(|all| all.iter().filter_map(|(name, one)| signal(name, one)).collect())
                    .unwrap_or_default(),
            })
        })
    }
}

fn signal(technology: &str, from: &Value) -> Option<Signal> {
    // It stands beside the technologies, with an `rssi` that is none of theirs.
    if technology == "threshold" {
        return None;
    }
    let found = Signal {
        technology: technology.to_owned(),
        rssi_dbm: number(&from["rssi"]),
        rsrp_dbm: number(&from["rsrp"]),
        rsrq_db: number(&from["rsrq"]),
        snr_db: number(&from["snr"]),
    };
    let known = found.rssi_dbm.or(found.rsrp_dbm).or(found.rsrq_db).or(found.snr_db);
    known.map(|_| found)
}

/// `mmcli` writes numbers as text, and `--` for none.
fn number(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// What a program prints, if it ends in time and well.
fn answer(command: &mut Command) -> Option<Value> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(None) if begun.elapsed() < TIMEOUT => sleep(POLL),
            Ok(Some(status)) => break status,
            _ => {
                // It may have ended in between; then there is nothing to end.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut text = String::new();
    child.stdout.take()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    status.success().then(|| serde_json::from_str(&text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What mmcli 1.20 printed of a modem with LTE and 5G, without what is not read.
    fn of_mmcli(arguments: &[&str]) -> Option<Value> {
        Some(match arguments {
            ["-L"] => json!({"modem-list": ["/M/7", "/M/8"]}),
            ["-m", "/M/7"] => json!({"modem": {"generic": {"ports": ["wwan1 (net)"]}}}),
            ["-m", "/M/8"] => json!({"modem": {"3gpp": {"imei": "1"}, "generic": {
                "access-technologies": ["lte", "5gnr"],
                "ports": ["cdc-wdm0 (qmi)", "wwan0 (net)"],
                "signal-quality": {"recent": "yes", "value": "70"}}}}),
            ["-m", "/M/8", "--signal-get"] => json!({"modem": {"signal": {
                "5g": {"error-rate": "--", "rsrp": "-101.00", "rsrq": "-12.00", "snr": "3.00"},
                "gsm": {"error-rate": "--", "rssi": "--"},
                "lte": {"error-rate": "--", "rsrp": "-96.00", "rsrq": "-11.00", "rssi": "-67.00", "snr": "12.40"},
                "refresh": {"rate": "5"},
                "threshold": {"error-rate": "no", "rssi": "0"}}}}),
            _ => return None,
        })
    }

    #[test]
    fn the_modem_of_the_device_has_its_technologies_and_signals() {
        let found = Modem::from("wwan0", of_mmcli).unwrap();
        assert_eq!((found.technologies.len(), found.signal_percent), (2, Some(70.0)));
        let of = |name| found.signals.iter().find(|one| one.technology == name).unwrap();
        assert_eq!(found.signals.len(), 2);
        assert_eq!((of("5g").rsrp_dbm, of("5g").rssi_dbm), (Some(-101.0), None));
        assert_eq!((of("lte").rssi_dbm, of("lte").snr_db), (Some(-67.0), Some(12.4)));
    }

    #[test]
    fn other_devices_and_a_program_without_answer_have_none() {
        assert_eq!(Modem::from("eth0", of_mmcli), None);
        assert_eq!(Modem::from("wwan0", |_| None), None);
        let only = |arguments: &[&str]| of_mmcli(arguments).filter(|_| arguments.len() < 3);
        assert_eq!(Modem::from("wwan0", only).unwrap().signals, []);
    }

    #[test]
    fn a_program_that_hangs_fails_or_is_absent_has_no_answer() {
        assert_eq!(answer(Command::new("sleep").arg("60")), None);
        assert_eq!(answer(Command::new("sh").args(["-c", "echo '{}'; exit 1"])), None);
        assert_eq!(answer(Command::new("echo").arg("no JSON")), None);
        assert_eq!(answer(&mut Command::new("no-such-program")), None);
        assert_eq!(answer(Command::new("echo").arg("[1]")), Some(json!([1])));
    }
}
