//! One epoch: its steps, and what is measured and kept after them.

use super::advance::{ANNOUNCED, Advance};
use super::{BestNetwork, Trainer, owned, stops};
use crate::checkpoint::{Best, State};
use crate::engine;
use crate::error::Error;
use crate::gate::Gate;
use crate::observe::{Notice, Observer, StepReport};
use crate::run::{EpochMetrics, Scores};
use crate::team::Team;
use ftprop_data::Epoch;
use ftprop_nn::Tally;
use ftprop_nn::engine::{NetworkState, Part};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How often a device that runs ahead is asked for results: waiting for them leaves it idle for a moment.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// What saving may cost: an epoch that ends sooner than this many times the last saving took is not saved.
const SAVING_SHARE: u32 = 20;
/// Examples whose statistics the averaged network's are taken over.
const AVERAGED_OVER: usize = 8192;

/// What is known of an epoch when its steps are done.
pub(super) struct EpochTimes {
    rate: f64,
    images_per_s: f64,
    waited: f64,
    exchanged: Option<f64>,
    /// Whether it is to be the last for now.
    pub(super) enough: bool,
}

impl Trainer {
    /// The steps of one epoch; none if the observer had enough before its end.
    pub(super) fn learn_epoch(&mut self, observer: &mut dyn Observer) -> Result<Option<EpochTimes>, Error> {
        let steps = self.train.batches_per_epoch();
        // Gradients of several batches are added up in the host's memory, so the host brings the batches.
        let accumulated = self.recipe.train.accumulate > 1;
        let resident = !accumulated && self.engine.resident().is_some_and(|resident| resident.has(Part::Train));
        let mut batches = (!resident).then(|| self.train.epoch(u64::from(self.state.epoch), self.state.batch));
        let mut tally = Tally::from(self.state.tally);
        let (started, mut settled) = (Instant::now(), Instant::now());
        // The end of what is announced, and the first batch whose outcome is not known yet.
        let (mut announced, mut open) = (self.state.batch, self.state.batch);
        let (mut images, mut enough) = (0, false);
        let (gate, team) = (self.gate.clone(), self.team.clone());
        let exchanging = || team.as_ref().map_or(Duration::ZERO, Team::waited);
        let exchanged_before = exchanging();
        let mut turn = None;
        while self.state.batch < steps {
            if let (None, Some(gate)) = (&turn, &gate) {
                turn = Some(gate.enter());
                settled = Instant::now();
            }
            let advance = self.advance(batches.as_mut(), &mut announced)?;
            if matches!(advance, Advance::Over) {
                break;
            }
            let last = self.state.batch >= steps;
            let due =
                self.storage.is_some() && self.saved.elapsed().as_secs_f64() >= self.recipe.train.checkpoint_seconds;
            let ahead = match &team {
                // All ranks after the same step.
                Some(_) => self.state.batch - open < self.span,
                None => self.engine.runs_ahead() && !resident && !due && settled.elapsed() < SETTLE_EVERY,
            };
            let mut seen = match advance {
                Advance::Made(seen) => seen,
                _ if ahead && !last => continue,
                _ => self.engine.finish()?,
            };
            let (mut took, mut stop) = (settled.elapsed(), false);
            if let Some(team) = &team {
                let all = team.settle(&seen, enough, took)?;
                (seen, took, stop) = (all.tally, all.took, all.stop);
            }
            turn = None;
            if !seen.loss_sum.is_finite() {
                return Err(self.diverged(self.state.batch));
            }
            if resident || team.is_some() {
                self.fit_span(self.state.batch - open, took, if resident { 16 } else { 1 });
            }
            (settled, open) = (Instant::now(), self.state.batch);
            tally.add(&seen);
            images += seen.examples;
            self.state.tally = tally.into();
            let report = StepReport {
                step: self.state.batch,
                steps,
                loss: tally.loss(),
                top1: tally.top1_share(),
                images_per_s: images as f64 / started.elapsed().as_secs_f64(),
                ranks: team.as_ref().map_or(1, |team| team.share().ranks),
            };
            enough |= stops(observer.step(&self.view(), &report))?;
            if !last {
                // Ranks stop when all know that one of them wants to.
                if stop || (enough && team.is_none()) {
                    return Ok(None);
                }
                if due {
                    self.save()?;
                    settled = Instant::now();
                }
            }
        }
        // Pictures at the end that were skipped leave steps that are done but not settled.
        if team.is_none() {
            tally.add(&self.engine.finish()?);
        }
        drop(turn);
        self.check_learned(&tally, resident)?;
        self.state.tally = tally.into();
        let waited = batches.as_ref().map_or(Duration::ZERO, Epoch::waited);
        if let Some(batches) = batches.filter(|batches| batches.skipped() > 0) {
            let (count, first) = (batches.skipped(), batches.first_skipped().map(ToString::to_string));
            observer.notice(&self.view(), &Notice::PicturesSkipped { count, first });
        }
        let seconds = started.elapsed().as_secs_f64();
        let own = [waited, exchanging() - exchanged_before].map(|time| time.as_secs_f64() / seconds);
        let (waited, exchanged) = self.shares_of_all(own)?;
        Ok(Some(EpochTimes {
            rate: self.factor(steps - 1) * self.recipe.optimizer.lr(),
            images_per_s: images as f64 / seconds,
            waited,
            exchanged,
            enough,
        }))
    }

    /// Refuses an epoch that left what is no number, or that did not see every example once.
    fn check_learned(&self, tally: &Tally, resident: bool) -> Result<(), Error> {
        // Thresholds hide what is no number from the loss. A GPU looks for it as it goes.
        if !self.engine.runs_ahead() {
            self.ensure_finite(&self.engine.network()?)?;
        }
        if resident && tally.examples != self.train_examples() as u64 {
            let (counted, examples) = (tally.examples, self.train_examples());
            return Err(Error::Miscounted { counted, examples, epoch: self.state.epoch });
        }
        Ok(())
    }

    /// The shares of an epoch that were spent waiting for batches and, where there are others, for them: means over all ranks.
    fn shares_of_all(&self, own: [f64; 2]) -> Result<(f64, Option<f64>), Error> {
        let Some(team) = &self.team else { return Ok((own[0], None)) };
        let [waited, exchanged] = team.sums(own)?.map(|sum| sum / team.share().ranks as f64);
        Ok((waited, Some(exchanged)))
    }

    /// Asks for as many steps next time as take about as long as results may be waited for.
    fn fit_span(&mut self, steps: usize, took: Duration, least: usize) {
        let wanted = SETTLE_EVERY.as_secs_f64() / took.as_secs_f64().max(1e-6) * steps as f64;
        self.span = (wanted as usize).clamp(self.span / 2, 4 * self.span).clamp(least, ANNOUNCED);
    }

    /// Evaluates, records the epoch, and saves.
    pub(super) fn finish_epoch(&mut self, times: &EpochTimes) -> Result<EpochMetrics, Error> {
        let epoch = self.state.epoch;
        let gate = self.gate.clone();
        let turn = || gate.as_deref().map(Gate::enter);
        let learned = self.use_average(&turn)?;
        let mut validation = None;
        if let Some(loader) = &self.validation {
            let _turn = turn();
            validation = Some(self.cpu.enter(|| engine::evaluate(&mut *self.engine, Part::Validation, loader))?);
        }
        let mut test = {
            let _turn = turn();
            self.cpu.enter(|| engine::evaluate(&mut *self.engine, Part::Test, &self.test))?
        };
        if let Some(team) = &self.team {
            test = team.total(&test)?;
            validation = validation.map(|own| team.total(&own)).transpose()?;
        }
        let measured = learned.is_some().then(|| self.engine.network().map(owned)).transpose()?;
        if let Some(learned) = learned {
            self.engine.set_network(&learned)?;
        }
        let metrics = EpochMetrics {
            epoch,
            train: Scores::from(&Tally::from(self.state.tally)),
            validation: validation.as_ref().map(Scores::from),
            test: Scores::from(&test),
            learning_rate: times.rate,
            images_per_s: times.images_per_s,
            images_per_s_of_a_rank: self.team.as_ref().map(|team| times.images_per_s / team.share().ranks as f64),
            waited: times.waited,
            exchanged: times.exchanged,
            seconds: self.epoch_seconds(),
        };
        if !(test.loss() + validation.map_or(0.0, |v| v.loss())).is_finite() {
            return Err(self.diverged(self.state.batch));
        }
        // Nothing is chosen on the test part: the figure of the network that is kept would flatter.
        let better = metrics.validation.is_none_or(|v| self.state.best.is_none_or(|best| v.top1 > best.top1()));
        let score = metrics.validation.unwrap_or(metrics.test).top1;
        let best = if better { Some(Best::new(epoch, score)) } else { self.state.best };
        let next = State { epoch: epoch + 1, step: self.state.step, best, ..State::start() };
        let over = epoch >= self.recipe.train.epochs || self.has_lost_patience(&next);
        let waited = self.saved.elapsed();
        let due =
            waited >= SAVING_SHARE * self.saving_took || waited.as_secs_f64() >= self.recipe.train.checkpoint_seconds;
        if better || over || due {
            let network = measured.map_or_else(|| self.engine.network().map(owned), Ok)?;
            self.ensure_finite(&network)?;
            if better {
                self.best = Some(BestNetwork { state: next, network });
            }
        }
        if let Some(storage) = &mut self.storage {
            storage.add_metrics(&metrics)?;
        }
        self.metrics.push(metrics);
        (self.state, self.before) = (next, 0.0);
        if over || due {
            self.save()?;
        }
        Ok(metrics)
    }

    /// Where the recipe asks for a moving average of the weights, has the engine compute with it, with statistics that
    /// belong to it, and gives the network under training.
    fn use_average<T>(&mut self, turn: &dyn Fn() -> T) -> Result<Option<NetworkState<'static>>, Error> {
        // A GPU's state is hundreds of megabytes with large networks: not to be brought here for nothing.
        if self.recipe.train.ema.is_none() {
            return Ok(None);
        }
        let Some(average) = self.engine.state()?.average.map(Cow::into_owned) else { return Ok(None) };
        let _turn = turn();
        let learned = owned(self.engine.network()?);
        let statistics = learned.statistics.clone();
        self.engine.set_network(&NetworkState { values: average.into(), statistics })?;
        // The epoch's own batches, so that a resumed run takes the same.
        let enough = AVERAGED_OVER.div_ceil(self.recipe.train.batch);
        let mut batches = self.train.delivering(false)?.epoch(u64::from(self.state.epoch), 0);
        let cpu = self.cpu.clone();
        cpu.enter(|| {
            let mut before = 0;
            for _ in 0..enough {
                let Some(batch) = batches.next_batch()? else { break };
                // Where norms go by the examples of all ranks, one that has none takes part all the same.
                if !batch.is_empty() || (self.recipe.train.sync_norm && self.team.is_some()) {
                    self.engine.take_statistics(batch.images, before)?;
                    before += 1;
                }
            }
            Ok::<_, Error>(())
        })?;
        if let Some(team) = self.team.as_ref().filter(|_| !self.recipe.train.sync_norm) {
            let mut network = owned(self.engine.network()?);
            team.mean(network.statistics.to_mut())?;
            self.engine.set_network(&network)?;
        }
        self.averaged = Some(self.engine.network()?.statistics.into_owned());
        Ok(Some(learned))
    }

    /// The epoch ends before it is done, and may go on later in this process: by then it has taken as long as now.
    pub(super) fn pause(&mut self) {
        self.before = if self.state.batch > 0 { self.epoch_seconds() } else { 0.0 };
        self.began = Instant::now();
    }

    /// How long the present epoch has taken, in all processes that it ran in.
    pub(super) fn epoch_seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}
