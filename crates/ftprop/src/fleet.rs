//! Several runs at once on one device.
//!
//! A small network leaves most of a GPU idle, so several share it, each in its own thread and stream; on the CPU
//! one run takes all cores and they follow one another. Runs that use the same data share it, on the host and on
//! the GPU. Where runs share a GPU, a later one is made while the others pause. A fleet can be ended at any moment
//! and called again: what is finished is left alone, and what is not goes on from its checkpoint.

use crate::device::Place;
use crate::error::Error;
use crate::gate::Gate;
use crate::progress::{Progress, counted, duration, tell};
use crate::recipe::Recipe;
use crate::run::RunFolder;
use crate::train::{Ending, Trainer};
use ftprop_data::Dataset;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One run of a fleet. A folder that has this run is gone on with; one whose run is finished is left alone.
#[derive(Clone, Debug)]
pub struct Job {
    pub recipe: Recipe,
    pub folder: PathBuf,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FleetOptions {
    /// Runs at the same time; 0 for as many as pays on the device.
    pub at_once: usize,
    /// Print nothing but errors.
    pub quiet: bool,
}

/// What pays on a GPU: with more, runs only wait for each other.
const AT_ONCE_ON_A_GPU: usize = 12;
/// How often a fleet says how far it is.
const SPEAK_EVERY: Duration = Duration::from_secs(10);

/// Trains all of them and gives how each ended, in the order of the jobs. An error of one does not end the others;
/// what is wrong with a job's folder, recipe or data is found before the first begins.
pub fn train_all(
    jobs: Vec<Job>,
    options: &FleetOptions,
    stop: &AtomicBool,
) -> Result<Vec<Result<Ending, Error>>, Error> {
    let mut endings: Vec<Option<Result<Ending, Error>>> = Vec::new();
    let mut waiting = VecDeque::new();
    for (index, job) in jobs.iter().enumerate() {
        job.recipe.check()?;
        if let Some(twin) = jobs[..index].iter().find(|other| other.folder == job.folder) {
            return Err(Error::Other(format!(
                "{} and {} would both be written to {}; give them different names",
                twin.recipe.name,
                job.recipe.name,
                job.folder.display()
            )));
        }
        let finished = job.finished()?;
        if finished.is_none() {
            waiting.push_back(index);
        }
        endings.push(finished.map(Ok));
    }
    let board = Board::new(&jobs, &waiting, options.quiet);
    let mut yard = Yard::default();
    let places: Vec<Place> = waiting.iter().map(|&i| yard.place(&jobs[i].recipe)).collect::<Result<_, _>>()?;
    for &index in &waiting {
        let recipe = &jobs[index].recipe;
        let dataset = yard.dataset(recipe)?;
        recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
    }
    let at_once = match options.at_once {
        0 if !places.is_empty() && places.iter().all(|p| p.gpu.is_some()) => AT_ONCE_ON_A_GPU,
        0 => 1,
        n => n,
    };
    yard.share(at_once.min(waiting.len()) > 1);
    if let Some(note) = places.iter().find_map(|p| p.note.as_ref()).filter(|_| !options.quiet) {
        tell(note);
    }
    if let Some(place) = places.first().filter(|_| !options.quiet) {
        let (done, all) = (jobs.len() - waiting.len(), jobs.len());
        let before = if done > 0 { format!(", {done} of them finished before") } else { String::new() };
        let all = counted(all as u64, "run");
        tell(&format!("{all}{before}; {} at once on {}", at_once.min(waiting.len()), place.describe()));
    }
    let patient = options.at_once == 0;
    let gate = yard.gate.clone();
    let mut shared =
        Shared { yard, prepared: VecDeque::new(), waiting, endings, retired: Vec::new(), patient, active: 0 };
    shared.prepare(&jobs, at_once);
    let workers = shared.prepared.len();
    if workers < at_once && !shared.waiting.is_empty() && !options.quiet {
        tell(&format!("no more than {workers} of them fit in the GPU's memory at once"));
    }
    let shared = Mutex::new(shared);
    std::thread::scope(|scope| {
        let worker = || {
            loop {
                // In a statement of its own: the lock must not be held while the run goes on.
                let prepared = lock(&shared).begin_prepared();
                let next = prepared.or_else(|| {
                    let over = || stop.load(Ordering::Relaxed) || lock(&shared).waiting.is_empty();
                    if over() {
                        return None;
                    }
                    // Always in this order: alone first, then the lock.
                    let _alone = gate.alone();
                    if over() { None } else { lock(&shared).begin(&jobs) }
                });
                let Some((index, trainer)) = next else { break };
                let (ending, trainer) = match trainer {
                    Ok(mut trainer) => {
                        let mut progress = board.progress(index, &trainer);
                        (trainer.run(stop, &mut progress), Some(trainer))
                    }
                    Err(error) => (Err(error), None),
                };
                board.ended(&jobs[index], &ending);
                lock(&shared).ended(index, ending, trainer);
            }
        };
        for _ in 0..workers {
            scope.spawn(worker);
        }
    });
    let Shared { endings, .. } = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ending = |ending: Option<_>| ending.unwrap_or(Ok(Ending::Interrupted { epoch: 1, step: 0 }));
    Ok(endings.into_iter().map(ending).collect())
}

impl Job {
    /// Whether a run folder's run is this one.
    pub(crate) fn is_in(&self, folder: &RunFolder) -> Result<bool, Error> {
        Ok(folder.recipe()?.portable() == self.recipe.portable())
    }

    /// How it ended, if it is finished already.
    fn finished(&self) -> Result<Option<Ending>, Error> {
        if !self.folder.join("recipe.toml").exists() {
            RunFolder::planned(&self.folder)?;
            return Ok(None);
        }
        let folder = RunFolder::open(&self.folder)?;
        if !self.is_in(&folder)? {
            return Err(Error::Other(format!(
                "{} holds a run of another recipe; remove it or choose another --out",
                self.folder.display()
            )));
        }
        let summary = folder.summary()?.filter(|s| s.epochs >= self.recipe.train.epochs);
        Ok(summary.map(Ending::Finished))
    }
}

/// What the workers take from and give to.
struct Shared {
    yard: Yard,
    prepared: VecDeque<(usize, Result<Trainer, Error>)>,
    waiting: VecDeque<usize>,
    endings: Vec<Option<Result<Ending, Error>>>,
    /// Runs that ended. They keep their memory until others pause anyway: freeing it takes an idle GPU.
    retired: Vec<Trainer>,
    /// Whether a run for which there is no memory now waits for others to end.
    patient: bool,
    /// Runs under way.
    active: usize,
}

impl Shared {
    /// Makes the first runs, one after another before any begins: the choice of kernels by timing wants a GPU that does
    /// nothing else.
    fn prepare(&mut self, jobs: &[Job], at_once: usize) {
        while self.prepared.len() < at_once {
            let others = self.prepared.iter().any(|(_, trainer)| trainer.is_ok());
            if others && self.patient && !self.yard.has_room() {
                break;
            }
            let Some(made) = self.make(jobs, others) else { break };
            self.prepared.push_back(made);
        }
    }

    /// The next of those that were made before any began.
    fn begin_prepared(&mut self) -> Option<(usize, Result<Trainer, Error>)> {
        let next = self.prepared.pop_front()?;
        self.active += 1;
        Some(next)
    }

    /// The next run for a worker, newly made while the others pause; none where there is none left, or none that fits
    /// beside them.
    fn begin(&mut self, jobs: &[Job]) -> Option<(usize, Result<Trainer, Error>)> {
        self.retired.clear();
        let next = self.make(jobs, self.active > 0)?;
        self.active += 1;
        Some(next)
    }

    /// Makes the run that has waited longest; none where none waits, or where others leave no memory for it.
    fn make(&mut self, jobs: &[Job], others: bool) -> Option<(usize, Result<Trainer, Error>)> {
        let index = self.waiting.pop_front()?;
        match self.yard.trainer(&jobs[index]) {
            Err(Error::Cuda(error)) if self.patient && others && error.is_memory() => {
                self.waiting.push_front(index);
                None
            }
            trainer => Some((index, trainer)),
        }
    }

    fn ended(&mut self, index: usize, ending: Result<Ending, Error>, trainer: Option<Trainer>) {
        self.active -= 1;
        self.endings[index] = Some(ending);
        self.retired.extend(trainer);
    }
}

/// GPU memory that a fleet leaves free: for graphs, libraries' kernels, and other programs.
const ROOM: usize = 1 << 30;

/// Devices and data sets that runs have in common.
#[derive(Default)]
struct Yard {
    places: HashMap<(String, usize), Place>,
    gate: Arc<Gate>,
    datasets: HashMap<String, Arc<Dataset>>,
}

impl Yard {
    fn place(&mut self, recipe: &Recipe) -> Result<Place, Error> {
        let key = (recipe.train.device.clone(), recipe.train.threads);
        if let Some(place) = self.places.get(&key) {
            return Ok(place.clone());
        }
        let place = Place::open(&key.0, key.1)?;
        self.places.insert(key, place.clone());
        Ok(place)
    }

    /// Says whether runs that are made from now on have a GPU for themselves. On the CPU they share one pool of threads,
    /// which could not go on if a run waited in it.
    fn share(&mut self, shared: bool) {
        for gpu in self.places.values_mut().filter_map(|place| place.gpu.as_mut()) {
            gpu.gate = shared.then(|| self.gate.clone());
        }
    }

    /// Whether every GPU has memory to spare.
    fn has_room(&self) -> bool {
        let gpus = self.places.values().filter_map(|place| place.gpu.as_ref());
        gpus.filter_map(|gpu| gpu.device.memory().ok()).all(|(free, _)| free > ROOM)
    }

    fn dataset(&mut self, recipe: &Recipe) -> Result<Arc<Dataset>, Error> {
        let key = format!("{:?}", recipe.data);
        if let Some(dataset) = self.datasets.get(&key) {
            return Ok(dataset.clone());
        }
        let dataset = Arc::new(recipe.data.open()?);
        self.datasets.insert(key, dataset.clone());
        Ok(dataset)
    }

    fn trainer(&mut self, job: &Job) -> Result<Trainer, Error> {
        let (place, dataset) = (self.place(&job.recipe)?, self.dataset(&job.recipe)?);
        let folder = match job.folder.join("recipe.toml").exists() {
            true => RunFolder::open(&job.folder)?,
            false => RunFolder::planned(&job.folder)?,
        };
        let trainer = Trainer::new(job.recipe.clone(), folder.clone(), &dataset, &place)?;
        folder.write_recipe(&job.recipe)?;
        Ok(trainer)
    }
}

/// What a person sees of a fleet: each run's end, and now and then how far all are.
struct Board {
    quiet: bool,
    runs: usize,
    started: Instant,
    tally: Arc<Mutex<BoardTally>>,
}

struct BoardTally {
    /// Epochs of all runs that have to be done, those that are, and those that an earlier call did.
    epochs: u64,
    done: u64,
    before: u64,
    runs_done: usize,
    /// When the first run began: making runs, with kernels to compile and time, says nothing about how long epochs take.
    began: Option<Instant>,
    spoke: Instant,
}

impl Board {
    fn new(jobs: &[Job], waiting: &VecDeque<usize>, quiet: bool) -> Self {
        let epochs = waiting.iter().map(|&i| u64::from(jobs[i].recipe.train.epochs)).sum();
        let now = Instant::now();
        let tally = BoardTally { epochs, done: 0, before: 0, runs_done: 0, began: None, spoke: now };
        Board { quiet, runs: waiting.len(), started: now, tally: Arc::new(Mutex::new(tally)) }
    }

    /// What a run reports to.
    fn progress(&self, index: usize, trainer: &Trainer) -> Progress {
        let before = u64::from(trainer.state().epoch - 1);
        let mut tally = lock(&self.tally);
        tally.done += before;
        tally.before += before;
        let began = *tally.began.get_or_insert_with(Instant::now);
        let (tally, quiet, runs, started) = (self.tally.clone(), self.quiet, self.runs, self.started);
        let name = trainer.recipe().name.clone();
        Progress::watched(move |message| {
            let mut tally = lock(&tally);
            if let Some(text) = message {
                tell(&format!("{name} (run {}): {text}", index + 1));
                return;
            }
            tally.done += 1;
            if quiet || tally.spoke.elapsed() < SPEAK_EVERY {
                return;
            }
            tally.spoke = Instant::now();
            let pace = began.elapsed().as_secs_f64() / (tally.done - tally.before) as f64;
            let left = Duration::from_secs_f64(pace * tally.epochs.saturating_sub(tally.done) as f64);
            tell(&format!(
                "{} of {runs} runs done, {} of {} epochs; {} so far, {} left",
                tally.runs_done,
                tally.done,
                tally.epochs,
                duration(started.elapsed()),
                duration(left)
            ));
        })
    }

    fn ended(&self, job: &Job, ending: &Result<Ending, Error>) {
        let name = &job.recipe.name;
        let place = job.folder.display();
        lock(&self.tally).runs_done += 1;
        match ending {
            Ok(Ending::Finished(s)) if !self.quiet => tell(&format!(
                "{name}, seed {}: test accuracy {:.2} % after {} (best {:.2} %), train {:.2} %; {place}",
                job.recipe.train.seed,
                100.0 * s.test.top1_last,
                counted(s.epochs, "epoch"),
                100.0 * s.test.top1_best,
                100.0 * s.train.top1_last,
            )),
            Err(error) => tell(&format!("{place} failed: {error}")),
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::DIGITS;

    fn jobs(folder: &std::path::Path, names: &[&str]) -> Vec<Job> {
        let job = |name: &&str| {
            let mut recipe = Recipe::from_toml("digits", DIGITS).unwrap();
            recipe.name = name.to_string();
            (recipe.train.epochs, recipe.train.device, recipe.train.threads) = (1, "cpu".into(), 1);
            recipe.train.seed = name.len() as u64;
            Job { folder: folder.join(name), recipe }
        };
        names.iter().map(job).collect()
    }

    #[test]
    fn each_run_of_a_fleet_is_what_it_is_alone() {
        let temp = std::env::temp_dir().join(format!("ftprop-fleet-{}", std::process::id()));
        let (names, stop) = (["a", "bb", "ccc"], AtomicBool::new(false));
        let files =
            |part: &str| names.map(|n| std::fs::read(temp.join(part).join(n).join("checkpoint.safetensors")).unwrap());
        let quiet = |at_once| FleetOptions { at_once, quiet: true };
        let together = train_all(jobs(&temp.join("together"), &names), &quiet(2), &stop).unwrap();
        let apart = train_all(jobs(&temp.join("apart"), &names), &quiet(1), &stop).unwrap();
        for (ending, other) in together.iter().zip(&apart) {
            let (Ok(Ending::Finished(a)), Ok(Ending::Finished(b))) = (ending, other) else { panic!("{ending:?}") };
            assert_eq!((&a.name, a.test), (&b.name, b.test));
        }
        assert_eq!(files("together"), files("apart"));

        // Again: nothing is left to do, and another recipe is not taken for this one.
        let before = files("apart");
        std::fs::remove_file(temp.join("apart/a/checkpoint.safetensors")).unwrap();
        let again = train_all(jobs(&temp.join("apart"), &names), &quiet(2), &stop).unwrap();
        assert!(again.iter().all(|e| matches!(e, Ok(Ending::Finished(_)))), "{again:?}");
        assert!(!temp.join("apart/a/checkpoint.safetensors").exists(), "a finished run was run again");
        assert_eq!(before[2], std::fs::read(temp.join("apart/ccc/checkpoint.safetensors")).unwrap());
        let mut other = jobs(&temp.join("apart"), &names);
        other[1].recipe.train.batch = 48;
        let error = train_all(other, &quiet(1), &stop).unwrap_err().to_string();
        assert!(error.contains("another recipe") && error.contains("bb"), "{error}");

        // Stopped before it begins, a run is left for later.
        let stopped = train_all(jobs(&temp.join("later"), &names), &quiet(1), &AtomicBool::new(true)).unwrap();
        assert!(stopped.iter().all(|e| matches!(e, Ok(Ending::Interrupted { .. }))), "{stopped:?}");
        std::fs::remove_dir_all(&temp).unwrap();
    }
}
