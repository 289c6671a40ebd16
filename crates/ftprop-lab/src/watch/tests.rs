use super::*;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::recipe::Recipe;
use ftprop_train::run::RunFolder;
use ftprop_train::trainer::Trainer;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

/// A short run of the digits, hard layers looked into.
fn train(folder: &Path, name: &str, validation: f64) {
    let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
    recipe.name = name.into();
    (recipe.train.epochs, recipe.train.diagnostics, recipe.data.validation) = (2, true, validation);
    let (dataset, place) = (recipe.data.open().unwrap(), Place::open(DeviceChoice::Cpu, 1).unwrap());
    let folder = RunFolder::planned(folder).unwrap();
    Trainer::in_folder(recipe.checked().unwrap(), folder, &dataset, &place).unwrap().run(&mut ()).unwrap();
}

/// What is sent as it is, and what comes back, head and body.
fn raw(address: SocketAddr, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    // A server that refuses early may not read all of it.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split_once("\r\n\r\n").map_or((text.clone(), String::new()), |(head, body)| (head.into(), body.into()))
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    raw(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

fn json(address: SocketAddr, path: &str) -> Value {
    let (head, body) = get(address, path);
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/json"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"))
}

#[test]
fn a_page_about_runs_over_loopback() {
    let temp = std::env::temp_dir().join(format!("ftprop-watch-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&temp);
    std::fs::create_dir_all(&temp).unwrap();
    train(&temp.join("a"), "<b>first</b>", 0.2);
    let local = "127.0.0.1:0".parse().unwrap();
    assert!(Server::bind(local, vec![temp.join("none")]).is_err());
    let server = Server::bind(local, vec![temp.clone()]).unwrap();
    let (address, stop) = (server.address(), AtomicBool::new(false));
    assert!(Server::bind(address, vec![temp.clone()]).err().unwrap().to_string().contains("another port"));
    assert!(address.ip().is_loopback());
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(&stop).unwrap());
        let tested = std::panic::catch_unwind(|| {
            pages(address);
            what_runs_say(address, &temp);
            hostile(address);
        });
        stop.store(true, Ordering::Relaxed);
        if let Err(failed) = tested {
            std::panic::resume_unwind(failed);
        }
    });
    std::fs::remove_dir_all(&temp).unwrap();
}

/// A study's folder was refused, and so was one that was to be watched from the start.
#[test]
fn a_study_is_watched_from_before_its_first_run() {
    let temp = std::env::temp_dir().join(format!("ftprop-watch-study-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&temp);
    std::fs::create_dir_all(&temp).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), vec![temp.clone()]).unwrap();
    assert_eq!(server.runs(), 0);
    for (number, seed) in (1..).zip(["seed-1", "seed-2"]) {
        train(&temp.join("runs/digits/layer_loss-hinge").join(seed), "digits", 0.0);
        std::fs::write(temp.join("report.md"), "").unwrap();
        assert_eq!(server.runs(), number);
    }
    std::fs::remove_dir_all(&temp).unwrap();
}

fn pages(address: SocketAddr) {
    for (path, kind, word) in [
        ("/", "text/html", "page.js"),
        ("/page.js", "text/javascript", "runs.json"),
        ("/page.css", "text/css", ".chart"),
    ] {
        let (head, body) = get(address, path);
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains(kind) && body.contains(word), "{path}: {head}");
        assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{head}");
        assert!(!body.contains("http://") || path == "/page.js", "nothing is fetched from elsewhere");
        assert!(!body.contains("https://") && !body.contains("innerHTML"), "{path}");
    }
    let (head, body) = raw(address, format!("HEAD / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    assert!(head.contains(&format!("Content-Length: {}", PAGE.len())) && body.is_empty(), "{head}");
}

fn what_runs_say(address: SocketAddr, temp: &Path) {
    let runs = json(address, "/runs.json");
    assert_eq!((runs[0]["done"].as_u64(), runs[0]["finished"].as_bool()), (Some(2), Some(true)), "{runs}");
    assert_eq!(runs[0]["name"], "<b>first</b>");
    let run = json(address, "/0/run.json");
    assert_eq!(run["metrics"].as_array().map(Vec::len), Some(2));
    assert_eq!(run["diagnostics"].as_array().map(Vec::len), Some(3));
    assert!(run["error"].is_null() && run["recipe"]["train"]["epochs"] == 2, "{run}");
    // The kept network on the part that it was chosen by: the figure of its epoch.
    let mistakes = json(address, "/0/mistakes.json");
    assert_eq!(mistakes["part"], "validation", "{mistakes}");
    let best = run["metrics"].as_array().unwrap().iter().map(|m| m["validation"]["top1"].as_f64().unwrap());
    let share = mistakes["right"].as_f64().unwrap() / mistakes["examples"].as_f64().unwrap();
    assert!((share - best.fold(0.0, f64::max)).abs() < 1e-9, "{share}");
    let counted: u64 = mistakes["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(Some(counted), mistakes["examples"].as_u64());
    let wrong = counted - mistakes["right"].as_u64().unwrap();
    let shown = mistakes["mistakes"].as_array().unwrap();
    assert_eq!(shown.len() as u64, wrong.min(24));
    assert!(
        shown.iter().all(|m| m["truth"] != m["answer"] && m["picture"].as_str().unwrap().starts_with("iVBORw0KGgo"))
    );
    // A run that begins while the page is open is found, and keeps the others' numbers; one that is damaged says so.
    train(&temp.join("0-earlier by name"), "second", 0.0);
    let runs = json(address, "/runs.json");
    assert_eq!((&runs[0]["name"], &runs[1]["name"]), (&Value::from("<b>first</b>"), &Value::from("second")));
    assert_eq!(json(address, "/1/mistakes.json")["part"], "test");
    std::fs::write(temp.join("a/metrics.jsonl"), "nonsense\n").unwrap();
    let runs = json(address, "/runs.json");
    assert!(runs[0]["error"].as_str().unwrap().contains("metrics.jsonl:1"), "{runs}");
    assert!(json(address, "/0/run.json")["error"].as_str().unwrap().contains("metrics.jsonl:1"));
}

fn hostile(address: SocketAddr) {
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/0/../../recipe.toml",
        "/0/recipe.toml",
        "/-1/run.json",
        "/99/run.json",
        "/99999999999999999999/run.json",
        "/0x0/run.json",
        "/+0/run.json",
        "/run.json",
        "/0/",
        "/favicon.ico",
    ] {
        assert!(get(address, path).0.starts_with("HTTP/1.1 404"), "{path}");
    }
    let status = |request: &str| raw(address, request.as_bytes()).0.lines().next().unwrap_or_default().to_string();
    let host = format!("Host: {address}\r\n");
    assert!(status("GET /runs.json HTTP/1.1\r\nHost: evil.example\r\n\r\n").contains("403"));
    assert!(
        status(&format!("GET /runs.json HTTP/1.1\r\nHost: evil.example:{}\r\n\r\n", address.port())).contains("403")
    );
    assert!(status("GET /runs.json HTTP/1.1\r\n\r\n").contains("400"));
    assert!(status(&format!("DELETE / HTTP/1.1\r\n{host}\r\n")).contains("405"));
    assert!(status("nonsense\r\n\r\n").contains("400"));
    let large = format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(64 << 10));
    // Refused, or cut off while it was still sending.
    assert!(["431", ""].iter().any(|word| status(&large).contains(word)));
    let (head, _) = raw(address, &[b"GET / HTTP/1.1\r\n", &vec![0xff; 9000][..]].concat());
    assert!(!head.contains("200"), "{head}");
    // Those who say nothing hold no more than their places, and those not for long.
    let began = Instant::now();
    let silent: Vec<_> = (0..CONNECTIONS - 4).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "/runs.json").0.contains("200 OK"));
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert!(get(address, "/").0.contains("200 OK"));
}
